"use strict";
// The page: written from its data once, and again whenever a run that is on has news.

// Objects by the names of streams and elements: a name such as "constructor" must find nothing that all objects inherit.
const bare = (key, value) => (value && typeof value === "object" && !Array.isArray(value) ? Object.assign(Object.create(null), value) : value);
const data = JSON.parse(document.getElementById("data").textContent, bare);
const main = document.getElementById("main");
const SVG = "http://www.w3.org/2000/svg";

// --- words and numbers -------------------------------------------------------------------------

const escape = (text) => String(text).replace(/[&<>"]/g, (sign) => `&#${sign.charCodeAt(0)};`);
const whole = (value) => (value === null || value === undefined ? "not known" : Math.round(value).toLocaleString("en"));

function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0 s";
  if (value < 0.001) return `${(value * 1e6).toFixed(0)} µs`;
  if (value < 1) return `${(value * 1000).toFixed(value < 0.01 ? 1 : 0)} ms`;
  return `${value < 1000 ? value.toPrecision(3) : Math.round(value).toLocaleString("en")} s`;
}

function rate(value) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0/s";
  return `${value >= 99.5 ? Math.round(value).toLocaleString("en") : value.toPrecision(2)}/s`;
}

function ago(at) {
  const past = Math.max(0, Date.now() / 1000 - at);
  if (past < 90) return `${Math.round(past)} s ago`;
  if (past < 5400) return `${Math.round(past / 60)} min ago`;
  return new Date(at * 1000).toLocaleString("en", { dateStyle: "medium", timeStyle: "short" });
}

function set(id, html) {
  const place = document.getElementById(id);
  if (place.dataset.html !== html) {
    place.innerHTML = html;
    place.dataset.html = html;
  }
}

// --- a chart: lines over time or over a setting, with a band and marks ---------------------------

const WIDTH = Math.max(320, Math.min(640, window.innerWidth - 32)), HEIGHT = 220, LEFT = 58, RIGHT = 12, TOP = 12, BOTTOM = 28;

function steps(most, count = 4) {
  const rough = most / count, size = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((times) => times * size).find((one) => one >= rough);
  return Array.from({ length: Math.floor(most / step + 1e-9) + 1 }, (_, place) => place * step);
}

function decades(least, most) {
  const all = [];
  for (let power = Math.floor(Math.log10(least)); power <= Math.log10(most); power++) for (const digit of [1, 2, 5]) all.push(digit * 10 ** power);
  const within = all.filter((one) => one >= least && one <= most);
  return within.length > 6 ? within.filter((one) => /^1/.test(one.toPrecision(1))) : within;
}

// A line is told from the others by its dashes as well as by its colour; of twenty no two have both in common.
const COLOURS = ["var(--p50)", "var(--p95)", "var(--p99)", "var(--good)"], DASHES = ["none", "9 4", "2 3", "12 3 2 3", "5 2"];
const styled = (place) => ({ colour: COLOURS[place % COLOURS.length], dash: DASHES[place % DASHES.length] });
const stroke = (line) => `fill="none" stroke="${line.colour}" stroke-width="2" stroke-dasharray="${line.dash}"`;

function chart(title, lines, { from, to, shownX, shownY, bands = [], marks = [], point = null, log = false }) {
  const values = [...lines.flatMap((line) => line.points.map((one) => one[1])), ...bands.flatMap((band) => band.range)];
  const finite = values.filter((value) => value !== null && Number.isFinite(value));
  if (finite.length && !finite.some((value) => value > 0)) return `<p class="faint">None.</p>`;
  if (!finite.length || !(to > from)) return `<p class="faint">Not known.</p>`;
  const most = Math.max(...finite, 1e-9) * 1.08, least = log ? Math.min(...finite.filter((value) => value > 0)) / 1.15 : 0;
  const scaled = (value) => (log ? Math.log(Math.max(value, least) / least) / Math.log(most / least) : value / most);
  const x = (at) => LEFT + ((at - from) / (to - from)) * (WIDTH - LEFT - RIGHT);
  const y = (value) => HEIGHT - BOTTOM - scaled(value) * (HEIGHT - TOP - BOTTOM);
  const parts = [];
  for (const step of log ? decades(least, most) : steps(most)) {
    parts.push(`<line class="axis" x1="${LEFT}" x2="${WIDTH - RIGHT}" y1="${y(step)}" y2="${y(step)}"/>`);
    parts.push(`<text x="${LEFT - 6}" y="${y(step) + 4}" text-anchor="end">${shownY(step)}</text>`);
  }
  for (const place of [0, 0.5, 1]) {
    const anchor = ["start", "middle", "end"][place * 2];
    parts.push(`<text x="${x(from + place * (to - from))}" y="${HEIGHT - 8}" text-anchor="${anchor}">${shownX(from + place * (to - from))}</text>`);
  }
  for (const band of bands) {
    const [low, high] = band.range.map(y);
    parts.push(`<rect x="${LEFT}" width="${WIDTH - LEFT - RIGHT}" y="${high}" height="${Math.max(1, low - high)}" fill="var(--band)"/>`);
  }
  for (const mark of marks.filter((one) => one.at >= from && one.at <= to)) {
    parts.push(`<line class="mark" x1="${x(mark.at)}" x2="${x(mark.at)}" y1="${TOP}" y2="${HEIGHT - BOTTOM}"><title>${escape(mark.kind)}: ${escape(mark.why || "")}</title></line>`);
    parts.push(`<text x="${x(mark.at) + 3}" y="${TOP + 9}">${escape(mark.kind)}</text>`);
  }
  for (const line of lines) {
    const pieces = [];
    let open = false;
    for (const [at, value] of line.points) {
      if (value === null || value === undefined) { open = false; continue; }
      pieces.push(`${open ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`);
      open = true;
    }
    parts.push(`<path d="${pieces.join("")}" ${stroke(line)}/>`);
  }
  if (point !== null) parts.push(`<circle cx="${x(point[0])}" cy="${y(point[1])}" r="6" fill="none" stroke="var(--ink)" stroke-width="2.5"/>`);
  const last = lines.map((line) => `${line.name} ${shownY(line.points.map((one) => one[1]).filter((one) => one !== null).at(-1) ?? 0)}`).join(", ");
  const key = [...lines.map((line) => `<span><svg width="40" height="10" aria-hidden="true"><path d="M0 5L40 5" ${stroke(line)}/></svg> ${escape(line.name)}</span>`),
    ...bands.map((band) => `<span><i class="band" style="background:var(--band)"></i>${escape(band.name)}</span>`)].join("");
  return `<svg class="chart" viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img" aria-label="${escape(title)}; last: ${escape(last)}">${parts.join("")}</svg><div class="key">${key}</div>`;
}

// --- all runs -------------------------------------------------------------------------------------

function home(runs) {
  const rows = runs.map((run) => `<tr><td><a href="/runs/${encodeURIComponent(run.name)}">${escape(run.name)}</a></td><td class="word">${escape(run.state)}</td>
    <td>${run.last_commit === null ? "never" : ago(run.last_commit)}</td><td>${whole(run.accepted)}</td><td>${whole(run.dead_lettered)}</td>
    <td>${rate(run.rate)}</td><td>${seconds(run.p50_s)}</td><td>${seconds(run.p95_s)}</td></tr>`).join("");
  main.innerHTML = runs.length
    ? `<div class="scroll" tabindex="0" role="region" aria-label="Runs"><table><thead><tr><th scope="col">run</th><th scope="col" class="word">state</th><th scope="col">last commit</th><th scope="col">events</th><th scope="col">dead-lettered</th><th scope="col">rate</th><th scope="col">p50</th><th scope="col">p95</th></tr></thead><tbody>${rows}</tbody></table></div><p class="faint">All figures are measured.</p>`
    : `<p>No run lies here yet. Start one: <code>penstock run app.py</code>.</p>`;
}

// --- one run --------------------------------------------------------------------------------------

let now = data.run, chosen = null, span = null;

function skeleton() {
  main.innerHTML = `
    <section aria-labelledby="h-health"><h2 id="h-health">How it is</h2><div id="health"></div>
      <div id="counts" class="counts"></div><p class="faint" id="counted"></p></section>
    <section aria-labelledby="h-graph"><h2 id="h-graph">Topology</h2>
      <p class="faint">Rates of the last half minute of commits, and the time that an element takes for an event (measured). An element with a heavy frame works more than half of one core.${new Set(Object.values(now.groups)).size > 1 ? " Above an element stands the query that it runs in; a dashed arrow leads from query to query." : ""}</p>
      <div class="graph scroll" tabindex="0" role="region" aria-label="Picture of the topology">${data.picture}</div><p id="waits"></p><div id="element" aria-live="polite"></div></section>
    <section aria-labelledby="h-time"><h2 id="h-time">Over time</h2>
      <p><label style="display:inline">Show the last <input type="number" id="span" min="1" step="1" style="width:6rem" aria-describedby="span-hint"> minutes</label> <span class="faint" id="span-hint">(empty: all)</span></p>
      <div id="charts" class="columns"></div></section>
    <section aria-labelledby="h-if"><h2 id="h-if">What if</h2><div id="whatif"></div></section>
    <section aria-labelledby="h-letters"><h2 id="h-letters">Dead letters</h2><div id="letters"></div></section>`;
  const drawing = document.querySelector(".graph svg"), natural = drawing.viewBox.baseVal.width;
  drawing.style.minWidth = `${Math.max(Math.min(natural, 544), 0.6 * natural)}px`; // below that its text is too small, and it scrolls
  document.getElementById("span").addEventListener("input", (event) => { span = Number(event.target.value) || null; show(); });
  for (const box of document.querySelectorAll(".graph g[data-node]")) {
    const name = box.dataset.node;
    box.setAttribute("tabindex", "0");
    box.setAttribute("role", "button");
    const choose = () => { chosen = chosen === name ? null : name; show(); };
    box.addEventListener("click", choose);
    box.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); choose(); } });
  }
}

function health() {
  const lines = now.causes.map((cause) => `<div class="health ${cause.fault ? "bad" : ""}"><p><b>${escape(cause.kind)}</b>${cause.sure ? "" : " (not sure)"}: ${escape(cause.evidence)}</p>${cause.mend ? `<p>${escape(cause.mend)}</p>` : ""}</div>`);
  set("health", lines.join(""));
  const c = now.counts;
  const sign = (text) => `<span aria-hidden="true">${text}</span>`, count = (value, name) => `<span><b>${whole(value)}</b> ${name}</span>`;
  const parts = [sign("="), count(c.processed, "processed"), sign("+"), count(c.dead_lettered, "dead-lettered")];
  set("counts", c.processed === null ? "" : c.queued === null
    ? [count(c.processed + c.dead_lettered, "accepted and committed"), ...parts, "; what is queued is counted when the run stops"].join("")
    : [count(c.accepted, "accepted"), ...parts, sign("+"), count(c.queued, "queued")].join(""));
  const rest = [c.lost === null || c.lost === undefined ? "" : `lost ${whole(c.lost)}, duplicated ${whole(c.duplicated)}`, c.late ? `late ${whole(c.late)}` : ""].filter(Boolean).join("; ");
  set("counted", `Measured: ${escape(c.kind)}${rest ? `; ${rest}` : ""}.`);
}

function graph() {
  const lately = now.lately;
  for (const text of document.querySelectorAll(".graph text[data-stream]")) {
    const names = text.dataset.stream.split(", ").filter(Boolean);
    const total = names.map((name) => lately.streams[name]).filter((one) => one !== undefined);
    const waits = names.map((name) => lately.waiting[name]).filter(Boolean).reduce((a, b) => a + b, 0);
    if (names.length) text.textContent = (total.length ? `${names.join(", ")} ${rate(total.reduce((a, b) => a + b, 0))}` : names.join(", ")) + (waits ? `, ${whole(waits)} wait` : "");
  }
  for (const box of document.querySelectorAll(".graph g[data-node]")) {
    const [kind, ...rest] = box.dataset.node.split("_"), name = rest.join("_"), note = box.querySelectorAll("text")[1];
    const element = lately.elements[name];
    if (kind === "element" && element) note.textContent = `${rate(element.rate)} · ${seconds(element.service_us === null ? null : element.service_us / 1e6)}`;
    if (kind === "source") note.textContent = rate(lately.streams[name]) + (lately.waiting[name] ? ` · ${whole(lately.waiting[name])} wait` : "");
    if (kind === "sink") note.textContent = rate(lately.sinks[name]);
    box.classList.toggle("busy", Boolean(element && element.busy > 0.5));
    box.classList.toggle("chosen", box.dataset.node === chosen);
    box.setAttribute("aria-pressed", String(box.dataset.node === chosen));
  }
  set("waits", lately.waits ? `${escape(lately.waits[0].toUpperCase() + lately.waits.slice(1))} <span class="faint">(measured, as of the last micro-batch)</span>` : "");
  const source = (chosen || "").replace(/^source_/, ""), lag = chosen && chosen.startsWith("source_") ? lately.lag[source] : undefined;
  if (lag) { set("element", `<h3>${escape(source)}</h3>${lagging(lag)}`); return; }
  const name = (chosen || "").replace(/^element_/, ""), one = lately.elements[name], own = now.letters.filter((letter) => letter.place === name);
  set("element", !chosen ? "" : one ? `<h3>${escape(name)}</h3><div class="columns"><table><tbody>
    <tr><td>query (group)</td><td>${escape(now.groups[name] || "main")}</td></tr><tr><td>events</td><td>${whole(one.events)}</td></tr>
    <tr><td>now</td><td>${rate(one.rate)}</td></tr><tr><td>time of an event (mean)</td><td>${seconds(one.service_us === null ? null : one.service_us / 1e6)}</td></tr>
    <tr><td>works, of one core</td><td>${one.busy === null ? "–" : `${(100 * one.busy).toFixed(1)}%`}</td></tr><tr><td>instances</td><td>${whole(one.instances)}</td></tr>
    <tr><td>fullest partition, of the mean</td><td>${one.skew === null ? "–" : `${one.skew.toFixed(2)} times`}</td></tr>
    <tr><td>dead letters</td><td>${whole(one.dead_letters)}</td></tr><tr><td>late</td><td>${whole(one.late)}${one.late_in_part ? `; ${whole(one.late_in_part)} more missed some windows` : ""}</td></tr></tbody></table><div>${hottest(one.hottest)}</div></div>${own.length ? buried(own, `The last dead letters of ${escape(name)}`) : ""}`
    : `<p class="faint">${chosen.startsWith("element_") ? "Nothing was measured there lately." : "Its rate stands in its box; nothing else is measured there."}</p>`);
}

const MOST_PARTITIONS = 20;

function lagging(partitions) {
  const all = Object.entries(partitions).sort((one, other) => other[1] - one[1] || Number(one[0]) - Number(other[0]));
  const total = all.reduce((sum, one) => sum + one[1], 0), share = (rows) => (total ? `${((100 * rows) / total).toFixed(1)}%` : "–");
  const lines = all.slice(0, MOST_PARTITIONS).map(([name, rows]) => `<tr><td>${escape(name)}</td><td>${whole(rows)}</td><td>${share(rows)}</td></tr>`).join("");
  const rest = all.length > MOST_PARTITIONS ? `<p class="faint">The ${MOST_PARTITIONS} of ${all.length} partitions at which most wait.</p>` : "";
  return `<div class="columns"><table><thead><tr><th scope="col">partition</th><th scope="col">events wait</th><th scope="col">of all</th></tr></thead><tbody>${lines}</tbody></table></div>${rest}`;
}

function hottest(keys) {
  if (!keys.length) return `<p class="faint">No key is known to have over 2% of its events.</p>`;
  const lines = keys.map(([key, share]) => `<tr><td>${escape(key)}</td><td>${(100 * share).toFixed(1)}%</td></tr>`).join("");
  return `<table><thead><tr><th scope="col">hottest keys, lately</th><th scope="col">of its events</th></tr></thead><tbody>${lines}</tbody></table>`;
}

function charts() {
  const all = now.series.flatMap((one) => one.rows.map((row) => row[0]));
  if (!all.length) { set("charts", `<p class="faint">No micro-batch was committed yet.</p>`); return; }
  const to = Math.max(...all), from = Math.max(Math.min(...all), span ? to - 60 * span : -Infinity);
  const clock = (at) => new Date(at * 1000).toLocaleTimeString("en", { hour12: false });
  const within = (one, column) => one.rows.filter((row) => row[0] >= from).map((row) => [row[0], row[column]]);
  const common = { from, to, shownX: clock, marks: now.marks };
  const last = now.series.filter((one) => one.gives_results).at(-1) || now.series.at(-1);
  const bands = now.today && now.today.bands.p95.every((one) => one !== null) ? [{ name: "p95 predicted as it is now, 90% of runs", range: now.today.bands.p95 }] : [];
  const each = (column) => now.series.map((one, place) => ({ name: one.group, ...styled(place), points: within(one, column) }));
  const latency = chart("Latency", ["p50", "p95", "p99"].map((name, place) => ({ name, ...styled(place), points: within(last, place + 1) })), { ...common, shownY: seconds, bands });
  const figures = [
    ["Latency, from the intended send time to the commit of the result", latency],
    ["Events per second, by query", chart("Rate", each(4).filter((line) => line.points.some((one) => one[1])), { ...common, shownY: rate })],
    ["Time of a micro-batch, by query", chart("Duration", each(5), { ...common, shownY: seconds })],
    ["Rows that wait at the sources", chart("Backlog", each(6), { ...common, shownY: (value) => whole(value) })],
  ];
  set("charts", figures.map(([title, html]) => `<div><h3>${title}</h3>${html}</div>`).join("") + (now.why_not ? `<p class="faint">No prediction: ${escape(now.why_not)}</p>` : ""));
}

function buried(some, title) {
  const rows = some.map((one) => `<tr><td>${escape(one.place)}</td><td class="text">${escape(one.error)}</td><td class="text"><code>${escape(one.payload)}</code></td></tr>`).join("");
  const replays = [...new Set(some.map((one) => one.replay))].map((one) => `<p>To have them read again: <code>${escape(one)}</code></p>`).join("");
  return `<div class="scroll" tabindex="0" role="region" aria-label="${title}"><table><thead><tr><th scope="col">at</th><th scope="col" class="text">error</th><th scope="col" class="text">event</th></tr></thead><tbody>${rows}</tbody></table></div>${replays}`;
}

function letters() {
  set("letters", now.letters.length ? buried(now.letters, "The last dead letters")
    : now.letters_in.length ? `<p>They are messages of ${now.letters_in.map((topic) => `<code>${escape(topic)}</code>`).join(", ")}.</p>` : `<p>There are none.</p>`);
}

// --- what if --------------------------------------------------------------------------------------

// `stops` says where the sliders stop; `rows` has a row of cells, one for each trigger, by where the other sliders are.
let stops = null, rows = new Map(), asking = null;
const SLIDERS = { rate: "rates", trigger: "triggers", cores: "offered", min_rows: "thresholds", max_delay: "delays" };
const slider = (name) => document.getElementById(name);
const value = (name) => (stops[SLIDERS[name]].length ? stops[SLIDERS[name]][Number(slider(name).value)] : null);
const rowOf = (times, cores, least, delay) => JSON.stringify([times, cores, least, least > 1 ? delay : null]);
const here = () => rowOf(value("rate"), value("cores"), value("min_rows"), value("max_delay"));

function arrange(wanted) {
  const nearest = (values, one) => values.reduce((best, value, at) => (Math.abs(value - one) < Math.abs(values[best] - one) ? at : best), 0);
  for (const [name, values] of Object.entries(SLIDERS)) {
    slider(name).max = Math.max(0, stops[values].length - 1);
    slider(name).value = nearest(stops[values], wanted[name]);
  }
}

function keep(found) {
  const before = stops && slider("rate").max !== "" ? Object.fromEntries(Object.keys(SLIDERS).map((name) => [name, value(name)])) : null;
  if (stops === null || stops.fit !== found.fit) rows = new Map();
  const least = found.thresholds.length ? found.min_rows : null;
  found.asked.forEach((times, at) => rows.set(rowOf(times, found.offered.length ? found.cores : null, least, found.max_delay), found.cells[at]));
  stops = found;
  if (before) arrange(before);
}

function whatIf() {
  const place = document.getElementById("whatif");
  if (!now.today) { set("whatif", `<p class="faint">${escape(now.why_not)}</p>`); return; }
  if (place.dataset.html === "sliders") {
    slider("rate-today").textContent = rate(now.today.rate);
    if (stops && data.live && stops.fit !== now.fits) asked(query({})); // others when they are asked for
    return;
  }
  place.dataset.html = "sliders";
  const one = (name, label) => `<label id="${name}-label"><span>${label}: <output id="${name}-shown"></output></span><input type="range" id="${name}" min="0" step="1"></label>`;
  place.innerHTML = `<p class="faint">Predicted from the run's own micro-batches, at <span id="rate-today">${rate(now.today.rate)}</span> today. The line is over the trigger interval, its height logarithmic; the ring is where the sliders are.</p>
    <div class="sliders">${one("rate", "rate")}${one("trigger", "trigger interval")}${one("cores", "cores")}${one("min_rows", "rows that open the gate (K)")}${one("max_delay", "or after")}</div>
    <div id="predicted" aria-live="polite">The models work out the settings, which takes some seconds …</div><div id="curve"></div>`;
  (data.live ? asked("") : Promise.resolve(data.surface && keep(data.surface))).then(() => {
    if (!stops) return;
    arrange({ rate: 1, trigger: now.today.trigger, cores: stops.cores, min_rows: stops.min_rows, max_delay: stops.max_delay });
    for (const [name, values] of Object.entries(SLIDERS)) {
      const saved = !data.live && !["rate", "trigger"].includes(name); // a saved page has the cells of one gate
      slider(`${name}-label`).hidden = saved || stops[values].length < 2 || (name === "max_delay" && stops.thresholds.length < 2);
      slider(name).addEventListener("input", () => moved());
    }
    moved();
  });
}

function query(also) {
  const place = { rate: value("rate"), cores: value("cores"), min_rows: value("min_rows"), max_delay: value("max_delay"), ...also };
  if (place.min_rows === null || place.min_rows <= 1) delete place.max_delay;
  return new URLSearchParams(Object.entries(place).filter((one) => one[1] !== null)).toString();
}

function asked(which) {
  if (asking !== null) return Promise.resolve(); // whoever it was for looks again when the answer has come
  asking = which;
  let gone = false; // a stop that the models offer no longer
  return fetch(`/api/runs/${encodeURIComponent(now.name)}/what-if?${which}`).then((answer) => (answer.ok ? answer.json().then(keep) : answer.text().then((text) => { gone = which !== ""; set("predicted", escape(text)); })))
    .catch(() => set("predicted", "The server does not answer."))
    .finally(() => { asking = null; if (gone) return asked(""); if (stops && slider("rate").max !== "") moved(which); });
}

function moved(answered) {
  const times = value("rate"), column = Number(slider("trigger").value), trigger = stops.triggers[column], least = value("min_rows"), delay = value("max_delay");
  slider("rate-shown").textContent = `${times} times today's, ${rate(times * stops.present)}`;
  slider("trigger-shown").textContent = trigger === 0 ? "none (back to back)" : seconds(trigger);
  slider("cores-shown").textContent = value("cores") === null ? "" : `${value("cores")}, dividing the work (assumed)`;
  slider("min_rows-shown").textContent = least === null || least <= 1 ? "one, no gate" : whole(least);
  slider("max_delay-shown").textContent = seconds(delay);
  slider("max_delay").disabled = least === null || least <= 1;
  const row = rows.get(here());
  if (!row) {
    const wanted = query({});
    if (data.live && answered !== wanted) asked(wanted); // an answer that did not bring it is no reason to ask again
    return;
  }
  const cell = row[column], [p50, p95, p99, busy, batches] = cell || [];
  const gate = least > 1 ? `, and source options <code>min_rows=${least}&amp;max_delay=${delay}s</code>` : "";
  const written = data.live
    ? `<a class="button" download href="/api/runs/${encodeURIComponent(now.name)}/plan?${escape(query({ trigger }))}">Write this plan</a> <code>penstock run … --plan ${escape(now.name)}-plan.json</code>`
    : `To run so: <code>penstock run … --trigger "${trigger} s"</code>${gate}`;
  set("predicted", cell
    ? `<p>p50 <b>${seconds(p50)}</b>, p95 <b>${seconds(p95)}</b>, p99 <b>${seconds(p99)}</b>; busy ${(100 * busy).toFixed(0)}% of the time; ${whole(batches)} micro-batches a day (predicted).</p><p>${written}</p>`
    : `<p>The query would not keep up at this rate and setting (predicted).</p>`);
  const lines = ["p50", "p95", "p99"].map((name, figure) => ({ name, ...styled(figure), points: stops.triggers.map((one, at) => [at, row[at] ? row[at][figure] : null]) }));
  set("curve", chart("Predicted latency by trigger interval", lines, {
    from: 0, to: stops.triggers.length - 1, shownX: (at) => (Number.isInteger(at) ? seconds(stops.triggers[at]).replace(/^0 s$/, "back to back") : ""), shownY: seconds, point: cell ? [column, p95] : null, log: true }));
}

function show() {
  document.title = `${now.healthy ? "" : "! "}${now.name} – Penstock`;
  document.getElementById("title").textContent = now.name;
  set("state", `${escape(now.application)}, ${escape(now.state)}${now.real_time ? ", in real time" : now.trigger ? `, trigger ${seconds(now.trigger)}` : ", back to back"}${now.master ? `, on ${escape(now.master)}` : ""}${data.live ? ` · <a href="/">all runs</a>` : ""}`);
  health(); graph(); charts(); whatIf(); letters();
}

function follow() {
  const news = new EventSource(`/api/runs/${encodeURIComponent(now.name)}/events`);
  news.onmessage = (event) => {
    const found = JSON.parse(event.data, bare);
    if (found.gone) { set("state", escape(found.gone)); return; }
    if (found.run !== now.run) { location.reload(); return; } // started afresh, with another topology perhaps
    now = found;
    show();
  };
  news.onerror = () => set("state", `not connected; the figures are as of ${new Date().toLocaleTimeString("en", { hour12: false })}`);
}

if (data.runs) {
  home(data.runs);
  setInterval(() => fetch("/api/runs").then((answer) => answer.json()).then(home).catch(() => {}), 5000);
} else {
  skeleton();
  show();
  if (data.live) follow();
}

// The versions of the handbook that lie beside this one (versions.js above them lists them), to choose from.
const select = document.getElementById("versions");
if (select && Array.isArray(window.VERSIONS) && window.VERSIONS.length > 1) {
  for (const version of window.VERSIONS) {
    select.add(new Option(version, version, false, version === select.dataset.version));
  }
  select.parentElement.hidden = false;
  select.addEventListener("change", () => {
    location.href = `${select.dataset.root}../${select.value}/index.html`;
  });
}

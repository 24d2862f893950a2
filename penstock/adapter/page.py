"""The description of the adapter's API as a page, made from its OpenAPI document; it loads no other resources."""

from html import escape
from typing import Any

from penstock.web.document import document

Json = dict[str, Any]


def page(openapi: Json) -> str:
    """Return the page for an OpenAPI document."""
    info = openapi["info"]
    programs = f'<p>The same for programs: <a href="/openapi.json">/openapi.json</a> (OpenAPI {openapi["openapi"]}).</p>'
    operations = [
        _operation(path, method, operation, openapi)
        for path, methods in openapi["paths"].items()
        for method, operation in methods.items()
    ]
    opening = f"<h1>{escape(info['title'])}</h1><p>{escape(info['description'])}</p>"
    return document(info["title"], [opening, programs, *operations])


def _operation(path: str, method: str, operation: Json, openapi: Json) -> str:
    asked = "".join(
        f"<li><code>{escape(parameter['name'])}</code> ({parameter['in']}): {escape(parameter['description'])}</li>"
        for parameter in operation.get("parameters", [])
    )
    answers = "".join(
        f"<li><code>{status}</code> {escape(response['description'])}</li>"
        for status, response in operation["responses"].items()
    )
    return (
        f"<h2><code>{method.upper()} {escape(path)}</code></h2>\n<p>{escape(operation['summary'])}. "
        f"{escape(operation.get('description', ''))}</p>\n<pre>{escape(_curl(path, method, operation, openapi))}</pre>\n"
        f"<ul>{asked}</ul>\n<details><summary>Answers</summary><ul>{answers}</ul></details>\n"
    )


def _curl(path: str, method: str, operation: Json, openapi: Json) -> str:
    """Return an example request as a curl command; HOST:PORT stands for the adapter's address."""
    follow = " -N" if "text/event-stream" in str(operation["responses"]["200"]) else ""
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    data = "" if body is None else f" -d '{_example(body.get('anyOf', [body])[0], openapi)}'"
    verb = f" -X {method.upper()}" if method == "put" else ""
    return f"curl{follow}{verb} http://HOST:PORT{path.replace('{key}', 'KEY')}{data}"


def _example(schema: Json, openapi: Json) -> str:
    """Return an example of an event as JSON, with a typical value for each field."""
    if "$ref" in schema:
        schema = openapi["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
    fields = schema.get("properties", {})
    return "{" + ", ".join(f'"{name}": {_value(field)}' for name, field in fields.items()) + "}"


def _value(field: Json) -> str:
    return {"string": '"text"', "integer": "1", "number": "0.5", "boolean": "true", "array": "[]"}.get(
        str(field.get("type")), "null" if "anyOf" in field else "{}"
    )

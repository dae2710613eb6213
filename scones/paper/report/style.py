"""How the report page looks: one style sheet, light and dark, for paper, screen and phone."""

from __future__ import annotations

from scones.paper.report.plots import all_looks

_SHEET = """
:root {
  color-scheme: light dark;
  --ground: #ffffff; --card: #f7f8fa; --ink: #1f2933; --soft: #5b6672; --line: #d9dee4;
  --paper: #fbf6ea; --link: #0f5c8c; --strong: #0b1117;
LIGHT
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #14181d; --card: #1b2026; --ink: #d9dfe6; --soft: #97a3b0; --line: #323a43;
    --paper: #262319; --link: #7cc4f0; --strong: #ffffff;
DARK
  }
}
* { box-sizing: border-box; }
html { scroll-behavior: smooth; scroll-padding-top: 1rem; }
body {
  margin: 0; background: var(--ground); color: var(--ink);
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif;
}
main { max-width: 72rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; }
h1, h2, h3 { font-family: Georgia, "Times New Roman", serif; line-height: 1.2;
  color: var(--strong); }
h1 { font-size: clamp(1.6rem, 4.5vw, 2.5rem); margin: 0.5rem 0 1rem; }
h2 { font-size: 1.55rem; margin: 3.5rem 0 0.75rem; padding-top: 1.25rem;
  border-top: 1px solid var(--line); }
h3 { font-size: 1.08rem; margin: 0; }
p { max-width: 46rem; margin: 0.6rem 0; }
a { color: var(--link); text-decoration: none; }
a:hover { text-decoration: underline; }
code { font: 0.86em/1.4 ui-monospace, Menlo, Consolas, monospace; overflow-wrap: anywhere; }
nav { background: var(--card); border-radius: 0.5rem; padding: 0.75rem 1.1rem; margin: 1.5rem 0;
  columns: 18rem; column-gap: 2rem; }
nav ul { list-style: none; margin: 0; padding: 0; }
nav li { break-inside: avoid; }
nav ul ul { padding-left: 1rem; font-size: 0.88rem; margin-bottom: 0.5rem; }
figure, .table { margin: 1.75rem 0 2.25rem; }
figcaption, .caption { margin-bottom: 0.6rem; color: var(--soft); max-width: 50rem;
  font-size: 0.92rem; }
figcaption p, .caption p { margin: 0.15rem 0; }
.scroll { overflow-x: auto; border-top: 2px solid var(--ink); border-bottom: 2px solid var(--ink); }
table { border-collapse: collapse; width: 100%; font-size: 0.9rem;
  font-variant-numeric: tabular-nums; }
th, td { padding: 0.32rem 0.65rem; text-align: right; white-space: nowrap; }
th { font-weight: 600; }
thead th { border-bottom: 1px solid var(--line); vertical-align: bottom; }
thead .group { text-align: center; }
tbody th { text-align: left; font-weight: 500; position: sticky; left: 0;
  background: var(--ground); white-space: normal; min-width: 8.5rem; vertical-align: top; }
tbody tr { border-bottom: 1px solid var(--line); }
tbody tr:last-child { border-bottom: 0; }
td.left { text-align: left; white-space: normal; min-width: 14rem; }
td.text { text-align: left; vertical-align: top; }
thead th.text { text-align: left; }
tr.paper td, tr.paper th, td.paper { background: var(--paper); color: var(--soft);
  font-style: italic; }
tr.paper th { padding-left: 1.6rem; font-weight: 400; }
td a { color: inherit; border-bottom: 1px dotted var(--soft); }
td a:hover { color: var(--link); text-decoration: none; }
td.missing { color: var(--soft); font-size: 0.8rem; }
.first { border-left: 1px solid var(--line); }
.strong { font-weight: 700; color: var(--strong); }
.dot { display: inline-block; width: 0.62em; height: 0.62em; border-radius: 50%;
  margin-right: 0.45em; }
.note { font-size: 0.86rem; color: var(--soft); }
figure svg { display: block; width: 100%; height: auto; color: var(--ink); }
figure svg text {
  font-family: system-ui, -apple-system, "Segoe UI", Roboto, sans-serif !important;
}
.empty { border: 1px dashed var(--line); border-radius: 0.5rem; padding: 1.25rem; max-width: 50rem;
  color: var(--soft); }
details { margin-top: 0.6rem; }
summary { cursor: pointer; color: var(--link); font-size: 0.92rem; }
.origin { padding: 0.7rem 0; border-bottom: 1px solid var(--line); font-size: 0.88rem; }
.origin:target { background: var(--paper); outline: 0.5rem solid var(--paper); }
.origin dl { display: grid; grid-template-columns: minmax(7rem, max-content) 1fr;
  gap: 0.1rem 0.9rem; margin: 0.3rem 0 0; }
.origin dt { color: var(--soft); }
.origin dd { margin: 0; min-width: 0; }
@media (max-width: 36rem) {
  th, td { padding: 0.3rem 0.45rem; }
  .origin dl { grid-template-columns: 1fr; }
}
@media print {
  main { max-width: none; } nav { display: none; } details { display: block; }
  .scroll { overflow: visible; } table { font-size: 0.7rem; }
}
"""


def style_sheet() -> str:
    """Give the style sheet with the systems' colours in it."""
    looks = list(enumerate(all_looks()))
    light = "\n".join(f"  --look-{number}: {one.light};" for number, one in looks)
    dark = "\n".join(f"    --look-{number}: {one.dark};" for number, one in looks)
    return _SHEET.replace("LIGHT", light).replace("DARK", dark)

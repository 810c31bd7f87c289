#pragma once
/// What is the same in every report.html: its head with the styles, and its script.

namespace dstune {

inline constexpr const char* html_head = R"HTML(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<title>dstune-mpi: report</title>
<style>
:root{color-scheme:light dark;--ink:#1b1f24;--faint:#5b6470;--paper:#fff;--card:#f5f7f9;--rule:#d8dee4;--link:#0a58ca;--s0:#0072b2;--s1:#b8500a;--s2:#00795b;--s3:#9b3f86;--bad:#b3261e}
@media (prefers-color-scheme:dark){:root{--ink:#e6e9ed;--faint:#a3acb7;--paper:#14171b;--card:#1d2228;--rule:#363d46;--link:#7ab7ff;--s0:#5ab4ec;--s1:#f2a35e;--s2:#4fcfa6;--s3:#e08fce;--bad:#ff8a80}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:68rem;padding:1rem;font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper)}
h1{font-size:1.5rem;margin:.5rem 0}h2{font-size:1.15rem;margin:2rem 0 .5rem}
.answer{background:var(--card);border:1px solid var(--rule);border-radius:.5rem;padding:1rem}
.answer .name{font-size:1.25rem;font-weight:600;overflow-wrap:anywhere}
.answer .value{font-size:1.75rem;font-weight:600}
.label{display:inline-block;border:1px solid currentColor;border-radius:1rem;padding:0 .7rem;font-weight:600}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.2rem 1rem;margin:.7rem 0 0}
dt{color:var(--faint)}dd{margin:0;overflow-wrap:anywhere}
@media (max-width:40rem){dl{grid-template-columns:1fr}dd{margin-bottom:.5rem}}
p.note{color:var(--faint);margin:.3rem 0}
figure{margin:0;overflow-x:auto}
svg{display:block;width:100%;min-width:30rem;max-width:50rem;height:auto;font:12px system-ui,sans-serif;fill:var(--ink)}
svg .grid{stroke:var(--rule)}svg .equal{stroke:var(--faint);stroke-dasharray:5 4}
svg polyline{fill:none;stroke-width:1.5}svg .front{stroke:var(--faint)}svg .beaten{fill:var(--faint);opacity:.45}
.s0{fill:var(--s0)}.s1{fill:var(--s1)}.s2{fill:var(--s2)}.s3{fill:var(--s3)}
.l0{stroke:var(--s0)}.l1{stroke:var(--s1)}.l2{stroke:var(--s2)}.l3{stroke:var(--s3)}
.bad{fill:var(--bad)}
.scroll{overflow:auto;max-height:40rem;border:1px solid var(--rule);border-radius:.5rem}
table{border-collapse:collapse;width:100%;font-size:.875rem}
th,td{padding:.3rem .6rem;text-align:left;border-bottom:1px solid var(--rule);white-space:nowrap}
td.number,th.number{text-align:right;font-variant-numeric:tabular-nums}
td.text{white-space:normal;min-width:16rem}
thead th{position:sticky;top:0;background:var(--card)}
th button{all:unset;cursor:pointer;font-weight:600}
th button:focus-visible{outline:2px solid var(--link)}
th[aria-sort=ascending] button::after{content:" \2191"}th[aria-sort=descending] button::after{content:" \2193"}
tr.best{background:var(--card);font-weight:600}
.failed{color:var(--bad)}.idle{color:var(--faint)}
pre{background:var(--card);border:1px solid var(--rule);border-radius:.5rem;padding:.7rem;overflow:auto;max-height:30rem;font-size:.8125rem}
</style>
</head>
<body>
<main>
)HTML";

/// Without it the table has the best first and reads as well.
inline constexpr const char* html_script = R"HTML(<script>
for (const table of document.querySelectorAll("table.sortable"))
  table.tHead.rows[0].querySelectorAll("th").forEach((header, column) => {
    const button = document.createElement("button");
    button.append(...header.childNodes);
    header.append(button);
    button.addEventListener("click", () => {
      const down = header.getAttribute("aria-sort") === "ascending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      header.setAttribute("aria-sort", down ? "descending" : "ascending");
      const key = row => row.cells[column].dataset.value ?? row.cells[column].textContent;
      const rows = [...table.tBodies[0].rows];
      rows.sort((a, b) => {
        const [one, other] = [key(a), key(b)];
        if (one === "" || other === "") return (one === "") - (other === "");
        const order = isNaN(one) || isNaN(other) ? one.localeCompare(other) : one - other;
        return down ? -order : order;
      });
      table.tBodies[0].append(...rows);
    });
  });
</script>
)HTML";

}  // namespace dstune

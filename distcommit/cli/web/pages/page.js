
"use strict";
(() => {
  const at = (id) => document.getElementById(id);
  const form = at("filter"), table = at("dataset-table");
  const rows = () => [...at("dataset-rows").rows];
  const numberIn = (cell) => { const found = parseFloat(cell.textContent.replace(/,/g, "")); return isNaN(found) ? -1 : found; };
  let sorted = null;

  const filter = () => {
    const part = at("filter-name").value.toLowerCase(), outcome = at("filter-outcome").value;
    let shown = 0;
    for (const row of rows()) {
      const fits = row.cells[0].textContent.toLowerCase().includes(part) && (!outcome || row.cells[1].textContent === outcome);
      row.hidden = !fits;
      shown += fits ? 1 : 0;
    }
    at("filter-status").textContent = `${shown.toLocaleString("en")} of ${rows().length.toLocaleString("en")} shown`;
  };
  const sort = () => {
    const { place, down, numbers } = sorted;
    const keyed = rows().map((row) => [numbers ? numberIn(row.cells[place]) : row.cells[place].textContent, row]);
    keyed.sort(([one], [other]) => (one < other ? -1 : one > other ? 1 : 0) * (down ? -1 : 1));
    at("dataset-rows").append(...keyed.map(([, row]) => row));
  };
  if (table) {
    form.hidden = false;
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("input", filter);
    for (const head of table.tHead.rows[0].cells) {
      const button = document.createElement("button"), numbers = head.classList.contains("n");
      button.type = "button";
      button.textContent = head.textContent;
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const before = head.getAttribute("aria-sort");
        for (const each of table.tHead.rows[0].cells) each.removeAttribute("aria-sort");
        const down = before ? before === "ascending" : numbers;
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        sorted = { place: head.cellIndex, down, numbers };
        sort();
      });
    }
    filter();
  }

  const pause = at("pause");
  const everyS = Number(document.body.dataset.everyS || 0);
  if (!pause || !everyS) return;
  let paused = false;
  const tell = (text) => { if (at("update-status").textContent !== text) at("update-status").textContent = text; };
  const take = (page) => {
    for (const part of document.querySelectorAll("[data-part]")) {
      const fresh = page.getElementById(part.id);
      if (!fresh) return location.reload();
      if (part.contains(document.activeElement) || part.innerHTML === fresh.innerHTML) continue;
      const open = [...part.querySelectorAll("details")].map((each) => each.open);
      part.replaceChildren(...fresh.childNodes);
      part.querySelectorAll("details").forEach((each, place) => { each.open = open[place] || false; });
    }
    if (!table && page.getElementById("dataset-table")) return location.reload();
    if (table) { if (sorted) sort(); filter(); }
    document.title = page.title;
  };
  const ask = async () => {
    if (paused || document.hidden) return;
    try {
      const answer = await fetch(location.href, { cache: "no-store" });
      if (!answer.ok) { tell("The server no longer has this page."); return; }
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      take(page);
      if (!page.body.dataset.everyS) { clearInterval(timer); pause.hidden = true; tell("The run has ended."); } else tell("");
    } catch { tell("The server does not answer."); }
  };
  const timer = setInterval(ask, everyS * 1000);
  pause.hidden = false;
  pause.addEventListener("click", () => {
    paused = !paused;
    pause.setAttribute("aria-pressed", String(paused));
    tell(paused ? "Updates are paused." : "");
  });
})();

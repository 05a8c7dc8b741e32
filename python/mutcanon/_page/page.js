"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const PAGE = 200; // rows that are drawn at a time
  const $ = (id) => document.getElementById(id);
  const body = $("rows"), aside = $("model"), more = $("more");

  // Every name comes from somebody's archive: it only ever becomes text.
  function element(tag, attributes = {}, ...children) {
    const made = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  }
  function shape(tag, attributes = {}, ...children) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  }
  function size(bytes) {
    if (bytes === null || bytes === undefined) return "";
    const units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let i = 0;
    while (bytes >= 1024 && i < units.length - 1) { bytes /= 1024; i++; }
    return `${i && bytes < 100 ? bytes.toFixed(1) : Math.round(bytes)} ${units[i]}`;
  }
  const time = (s) => (s >= 1 ? `${s.toFixed(1)} s` : `${(s * 1e3).toFixed(1)} ms`);
  const label = (row) => (row.model ? `${row.file} [${row.model}]` : row.file);
  const saving = (row) => (row.saved ? size(row.saved) : row.saved === null ? `${row.formula} B` : "");

  const rows = data.rows.map((row, i) => {
    const codes = [...new Set((row.findings || []).map((f) => f.code))];
    const chains = row.chains || [];
    const copies = [...chains.flatMap((c) => c.copies), ...(row.others || [])];
    const words = [
      label(row), row.status, row.message || "", row.kind || "", ...codes, ...copies.map((c) => c.reason),
      ...chains.map((c) => `${c.target} ${c.producer}`),
    ];
    return {
      ...row, i, codes, wrong: codes.length, text: words.join(" ").toLowerCase(),
      changes: copies.some((c) => c.decision !== "keep") || ["rewritten", "would_rewrite"].includes(row.status),
      keeps: copies.some((c) => c.decision === "keep"),
    };
  });
  const kinds = {
    "": () => true, change: (r) => r.changes, finding: (r) => r.wrong > 0, kept: (r) => r.keeps,
    failed: (r) => r.before === undefined,
  };

  let sorted = rows, found = rows, drawn = 0, chosen = null, sort = { key: "", down: false };

  function order() {
    const { key, down } = sort;
    if (!key) { sorted = rows; return; }
    const value = (r) => (key === "file" ? label(r) : key === "saved" && r.saved === null ? Infinity : r[key] ?? -1);
    const compare = key === "file"
      ? (a, b) => (value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : 0)
      : (a, b) => value(a) - value(b);
    sorted = [...rows].sort((a, b) => (down ? compare(b, a) : compare(a, b)) || a.i - b.i);
  }
  function search() {
    const words = $("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
    const kind = kinds[$("kind").value];
    found = sorted.filter((r) => kind(r) && words.every((w) => r.text.includes(w)));
    drawn = 0;
    body.replaceChildren();
    draw();
    $("shown").textContent = found.length === rows.length ? `${rows.length} models` : `${found.length} of ${rows.length} models`;
  }
  function draw() {
    const part = found.slice(drawn, drawn + PAGE);
    drawn += part.length;
    body.append(...part.map(line));
    more.hidden = drawn >= found.length;
    if (!body.querySelector('[tabindex="0"]') && body.rows.length) body.rows[0].tabIndex = 0;
  }
  function line(row) {
    const name = element("td", {}, row.file);
    if (row.model) name.append(" ", element("small", {}, row.model));
    const cell = (text, kind = "number") => element("td", { class: kind }, text);
    const tr = element("tr", { tabindex: "-1", "aria-selected": String(chosen === row) });
    tr.row = row;
    if (row.before === undefined) {
      tr.append(name, element("td", { colspan: 4, class: row.status === "failed" ? "wrong" : "soft" }, row.message), cell(time(row.seconds)));
    } else {
      const codes = row.codes.map((code) => element("span", { class: "tag" }, code));
      tr.append(name, cell(row.before), cell(row.after), cell(saving(row)), element("td", {}, ...codes), cell(time(row.seconds)));
    }
    return tr;
  }

  function choose(row, { focus = false, remember = true } = {}) {
    chosen = row;
    for (const tr of body.rows) tr.setAttribute("aria-selected", String(tr.row === row));
    document.querySelector("main").classList.toggle("open", row !== null);
    aside.replaceChildren(...(row ? describe(row) : []));
    if (remember) history.replaceState(null, "", row ? `#${encodeURIComponent(label(row))}` : location.pathname + location.search);
    if (focus && row) aside.focus();
  }

  function describe(row) {
    const close = element("button", { type: "button", class: "close", "aria-label": "Close" }, "✕");
    close.addEventListener("click", back);
    const parts = [close, element("h2", {}, label(row))];
    if (row.before === undefined) return [...parts, element("p", {}, row.message)];
    const gone = row.before - row.after;
    const what = gone > 0 ? `${gone} of ${row.before} copies go` : gone < 0 ? `${-gone} copies are added` : row.before ? `${row.before} copies stay` : "no copies";
    parts.push(element("div", { class: "soft" }, [what, saving(row) && `${saving(row)} a call saved`].filter(Boolean).join(", ")));
    if (row.chains.length) {
      parts.push(element("h3", {}, "Mutations: target, copies, and what is written"), element("div", { class: "drawing" }, drawing(row)));
      const key = element("div", { class: "key" });
      key.append(element("i", { class: "g" }, "goes"), element("i", { class: "k" }, "stays"), element("i", { class: "n" }, "is added"));
      if (row.ordered) key.append(element("span", {}, "circled: order of the writes"), element("span", {}, "dotted: reads the old value of"));
      parts.push(key);
    }
    if (row.others.length) {
      parts.push(element("h3", {}, "Other copies"));
      for (const c of row.others) parts.push(element("div", {}, element("code", {}, c.name), ` ${c.decision === "collapse" ? "goes" : c.decision === "keep" ? "stays" : "is added"}${c.reason ? ": " + c.reason : ""}`));
    }
    if (row.findings.length) {
      parts.push(element("h3", {}, "What stock consumers get wrong"));
      for (const f of row.findings) {
        const block = element("div", { class: "finding" }, element("b", {}, f.code), ` ${f.output}${f.other ? ` because of ${f.other}` : ""}`);
        block.append(element("div", {}, `${f.sentence}; ${f.advice}.`), element("div", { class: "soft" }, f.consumers.join(", ")));
        parts.push(block);
      }
    }
    return parts;
  }

  function drawing(row) {
    const CHAR = 7.9, HEIGHT = 26, GAP = 30, LEFT = row.ordered ? 64 : 4;
    const short = (s) => (s.length > 34 ? `${s.slice(0, 16)}…${s.slice(-17)}` : s);
    const wide = (s) => short(s).length * CHAR + 18;
    const targets = Math.max(...row.chains.map((c) => wide(c.target)));
    const svg = shape("svg", { role: "img", "aria-label": `Mutations of ${label(row)}` });
    const at = new Map();
    let y = 6, width = 0;
    const box = (x, text, kind) => {
      const g = shape("g", { class: kind }, shape("rect", { x, y, width: wide(text), height: HEIGHT, rx: 5 }));
      g.append(shape("text", { x: x + 9, y: y + 17 }, short(text)), shape("title", {}, text));
      svg.append(g);
    };
    const arrow = (x1, x2, kind) => {
      const m = y + HEIGHT / 2;
      svg.append(shape("path", { class: kind, d: `M${x1} ${m}H${x2 + 6}` }), shape("path", { class: "head", d: `M${x2} ${m}l8 -4v8z` }));
    };
    for (const chain of row.chains) {
      at.set(chain.target, y + HEIGHT / 2);
      if (row.ordered && chain.place) {
        svg.append(shape("circle", { cx: LEFT - 14, cy: y + HEIGHT / 2, r: 9 }), shape("text", { class: "place", x: LEFT - 14, y: y + HEIGHT / 2 + 4 }, String(chain.place)));
      }
      box(LEFT, chain.target, "target");
      let x = LEFT + targets, from = LEFT + wide(chain.target);
      for (const part of [...chain.copies, { name: chain.producer, decision: "producer" }]) {
        arrow(x + GAP, from, part.decision === "collapse" ? "gone" : "");
        x += GAP;
        box(x, part.name, part.decision);
        x += wide(part.name);
        from = x;
      }
      width = Math.max(width, x);
      y += HEIGHT;
      const notes = chain.copies.filter((c) => c.decision !== "collapse").map((c) => [`${c.name} ${c.decision === "keep" ? "stays" : "is needed"}: ${c.reason}`, "note"]);
      if (chain.saved) notes.push(["its new value goes to a temporary first: a ring", "note"]);
      if (chain.findings.length) notes.push([`stock gets it wrong: ${chain.findings.join(", ")}`, "note wrong"]);
      for (const [text, kind] of notes) {
        y += 17;
        svg.append(shape("text", { class: kind, x: LEFT + 9, y: y - 1 }, text));
        width = Math.max(width, LEFT + text.length * 6.6);
      }
      y += 12;
    }
    for (const chain of row.chains) {
      for (const other of chain.reads) {
        if (!at.has(other) || other === chain.target) continue;
        const a = at.get(chain.target), b = at.get(other);
        svg.prepend(shape("path", { class: "reads", d: `M${LEFT - 26} ${a}C${LEFT - 62} ${a} ${LEFT - 62} ${b} ${LEFT - 26} ${b}` }));
      }
    }
    svg.setAttribute("width", Math.ceil(width + 8));
    svg.setAttribute("height", Math.ceil(y));
    return svg;
  }

  function move(tr, step) {
    let next = step > 0 ? tr.nextElementSibling : tr.previousElementSibling;
    if (!next && step > 0 && drawn < found.length) { draw(); next = tr.nextElementSibling; }
    if (!next) return;
    tr.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
    if (chosen) choose(next.row);
  }
  function back() {
    const row = chosen;
    choose(null);
    const tr = [...body.rows].find((t) => t.row === row) || body.rows[0];
    if (tr) { tr.tabIndex = 0; tr.focus(); }
  }

  body.addEventListener("click", (event) => {
    const tr = event.target.closest("tr");
    if (tr) choose(tr.row);
  });
  body.addEventListener("keydown", (event) => {
    const tr = event.target.closest("tr");
    if (!tr) return;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") { event.preventDefault(); move(tr, event.key === "ArrowDown" ? 1 : -1); }
    else if (event.key === "Enter" || event.key === " ") { event.preventDefault(); choose(tr.row, { focus: true }); }
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") { if (chosen) back(); else if (event.target === $("filter")) { $("filter").value = ""; search(); } }
    else if (event.key === "/" && !/INPUT|SELECT/.test(event.target.tagName)) { event.preventDefault(); $("filter").focus(); }
  });
  document.querySelector("thead").addEventListener("click", (event) => {
    const key = event.target.dataset.key;
    if (!key) return;
    sort = { key, down: sort.key === key ? !sort.down : key !== "file" };
    for (const th of document.querySelectorAll("th")) {
      const mine = th.firstElementChild.dataset.key === key;
      th.setAttribute("aria-sort", mine ? (sort.down ? "descending" : "ascending") : "none");
    }
    order();
    search();
  });
  $("filter").addEventListener("input", search);
  $("kind").addEventListener("change", search);
  more.firstElementChild.addEventListener("click", draw);
  new IntersectionObserver((seen) => { if (seen[0].isIntersecting && drawn < found.length) draw(); }, { rootMargin: "400px" }).observe(more);
  $("theme").addEventListener("click", () => {
    const dark = getComputedStyle(document.documentElement).colorScheme === "dark"
      || (!document.documentElement.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
    document.documentElement.dataset.theme = dark ? "light" : "dark";
  });
  window.addEventListener("hashchange", open);
  function open() {
    const wanted = (() => { try { return decodeURIComponent(location.hash.slice(1)); } catch { return ""; } })();
    const row = rows.find((r) => label(r) === wanted);
    if (row) choose(row, { remember: false });
  }

  const sum = (key) => rows.reduce((total, row) => total + (row[key] || 0), 0);
  const total = (value, words) => element("div", {}, element("b", {}, value), element("span", {}, words));
  $("title").textContent = data.title;
  $("version").textContent = data.version;
  document.title = `mutcanon: ${data.title}`;
  $("totals").append(
    total(rows.length, rows.length === 1 ? "model" : "models"),
    total(`${sum("before")} → ${sum("after")}`, "copies"),
    total(size(sum("saved")), "copied less in a call of each"),
    total(rows.filter((r) => r.wrong).length, "that stock gets wrong"),
    total(rows.filter((r) => r.status === "failed").length, "failed"),
  );
  search();
  open();
})();

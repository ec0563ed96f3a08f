// The arithmetic of mass_mover.py for what must follow a drag: same parts, same rounding.
const tolerance = 1e-9;
const at = (value) => String(Math.floor(value * 10 + 0.5 + 1e-6) / 10);
const figure = (value) => (Math.floor(value * 1000 + 0.5 + 1e-6) / 1000).toFixed(3);
const gap = (value) => (tolerance < value && value < 0.0005 ? "under 0.001" : figure(value));
const sum = (row) => row.reduce((total, value) => total + value, 0);
const level = (value) => G.base - G.height * value;

// Probabilities typed as text, or null where Python will say what is wrong with them.
function readRow(line) {
  const values = line.trim().split(/[\s,;]+/).map((word) => {
    const [above, below = "1"] = word.split("/");
    return Number(above) / Number(below);
  });
  const total = sum(values);
  const good = values.every((value) => value >= 0 && value <= 1) && Math.abs(total - 1) <= 0.002 + 1e-9;
  return good ? values.map((value) => value / total) : null;
}

function block(low, high) {
  const top = Math.max(low, high);
  return { y: at(level(top)), height: at(G.height * (top - low)) };
}

function hatch(x, width, low, high) {
  const top = level(high), tall = G.height * (high - low);
  let lines = "";
  for (let shift = 6; tall > 0.05 && shift < width + tall; shift += 6) {
    const x0 = x + Math.min(shift, width), y0 = top + Math.max(0, shift - width);
    const x1 = x + Math.max(0, shift - tall), y1 = top + Math.min(shift, tall);
    lines += `M${at(x0)} ${at(y0)}L${at(x1)} ${at(y1)}`;
  }
  return lines;
}

function arrow(x, mass, start, end) {
  if (mass < 0.0005) return "";
  const half = (G.bar * mass) / 2, head = half + 5;
  const neck = end + (start > end ? 8 : -8);
  const outline = [[-half, start], [-half, neck], [-head, neck], [0, end], [head, neck],
    [half, neck], [half, start]];
  return "M" + outline.map(([dx, y]) => `${at(x + dx)} ${at(y)}`).join("L") + "Z";
}

// What is drawn after a rejection, a share for each token.
function drawnFrom(draw, p, q) {
  const rest = p.map((value, i) => Math.max(value - q[i], 0));
  const total = sum(rest);
  if (draw === "M1" || total <= 0) return p;
  if (draw === "M3") {
    const weights = rest.map(Math.exp);
    return weights.map((weight) => weight / sum(weights));
  }
  if (draw === "M4") return rest.map((w, i) => (i === rest.length - 1 ? w + 1 - total : w));
  return rest.map((weight) => weight / total);
}

function lawOf(draw, p, q) {
  const kept = p.map((value, i) => Math.min(value, q[i]));
  const lost = sum(q.map((value, i) => value - kept[i]));
  const drawn = drawnFrom(draw, p, q).map((share) => lost * share);
  const out = kept.map((value, i) => value + drawn[i]);
  const off = sum(out.map((value, i) => Math.abs(value - p[i]))) / 2;
  return { kept, drawn, out, lost, off, alpha: sum(kept) };
}

function column(i, p, q, law, put) {
  const cell = Math.min(G.widest, G.span / p.length);
  const bar = Math.min(G.bar, (cell - 2 * G.grip - G.gap - 8) / 2);
  const middle = G.left + (G.span - cell * p.length) / 2 + cell * (i + 0.5);
  const left = middle - G.gap / 2 - bar, right = middle + G.gap / 2;
  const kept = law.kept[i], out = law.out[i], high = Math.max(q[i], kept);
  put(`kept${i}`, block(0, kept));
  put(`surplus${i}`, block(kept, q[i]));
  put(`hatch${i}`, { d: hatch(left, bar, kept, high) });
  put(`room${i}`, block(kept, p[i]));
  put(`same${i}`, block(0, kept));
  put(`drawn${i}`, block(kept, out));
  const grip = (side, value) => put(`grip-${side}${i}`, {
    transform: `translate(0,${at(level(value))})`, "data-now": String(Number(figure(value))),
  });
  put(`up${i}`, { d: arrow(left + bar / 2, q[i] - kept, level(q[i]), G.pipe) });
  put(`down${i}`, { d: arrow(right + bar / 2, law.drawn[i], G.pipe, level(out)) });
  put(`line${i}`, { d: `M${at(left - 3)} ${at(level(p[i]))}H${at(right + bar + 3)}` });
  grip("q", q[i]);
  grip("p", p[i]);
  put(`say-q${i}`, {}, `q ${figure(q[i])}`);
  put(`say-p${i}`, {}, `p ${figure(p[i])}`);
  put(`say-out${i}`, {}, `out ${figure(out)}`);
  const away = out - p[i], good = Math.abs(away) <= tolerance;
  const words = good ? "\u2713 = p" : (away > 0 ? "\u25B2 +" : "\u25BC \u2212") + figure(Math.abs(away));
  put(`mark${i}`, { fill: good ? "#00694d" : "#b34700" }, words);
}

function threeWays(p, q, law, put) {
  const segment = (name, start, length) =>
    put(name, { x: at(G.scale + G.unit * start), width: at(G.unit * length) });
  let done = 0, begun = 0;
  p.forEach((_, i) => {
    segment(`overlap${i}`, done, law.kept[i]);
    segment(`chance${i}`, begun, law.kept[i]);
    done += law.kept[i];
    begun += q[i];
  });
  segment("distance", 0, law.alpha);
  for (let i = 0; i < 3; i++) put(`alpha${i}`, {}, figure(law.alpha));
}

function verdict(law, put) {
  const good = law.off <= tolerance;
  const words = good ? "\u2713 what comes out is p" : "\u2717 what comes out is not p";
  put("verdict", { fill: good ? "#00694d" : "#b34700" }, words);
  put("off", {}, `TV(out, p) = ${gap(law.off)}`);
  put("lost", {}, `rejected: ${figure(law.lost)} of all drafts, drawn again below`);
}

local.move = (state, picture) => {
  const p = readRow(state.p), q = readRow(state.q);
  const names = [...picture.querySelectorAll("[data-word]")].map((e) => e.dataset.word);
  const shown = picture.parentElement?.querySelector(".sd-words")?.textContent ?? "";
  if (!p || !q || p.length !== names.length || q.length !== names.length) return shown;
  const parts = {};
  for (const element of picture.querySelectorAll("[data-part]"))
    parts[element.dataset.part] = element;
  const put = (name, attributes, words) => {
    for (const [key, value] of Object.entries(attributes)) parts[name].setAttribute(key, value);
    if (words !== undefined) parts[name].textContent = words;
  };
  const law = lawOf(state.draw, p, q);
  p.forEach((_, i) => column(i, p, q, law, put));
  threeWays(p, q, law, put);
  verdict(law, put);
  const list = names.map((name, i) => `${name} ${figure(law.out[i])}`).join(", ");
  const end = law.off <= tolerance ? "exactly p" : `not p, total variation ${gap(law.off)}`;
  return `Of all drafts ${figure(law.alpha)} are kept and ${figure(law.lost)} rejected, then drawn `
    + `again from ${G.said[state.draw]}. Out comes ${list}: ${end}.`;
};

// One token takes the value it is dragged to, in hundredths; the others share what is left in the
// proportions they had, in ten-thousandths, so that the row adds up to exactly one.
local.reduce = (state, changes) => {
  const after = { ...state };
  for (const [name, value] of Object.entries(changes)) {
    const [, side, index] = /^([pq])(\d)$/.exec(name) ?? [];
    // While one row cannot be read the picture stands still, and so do its grips.
    const row = side && readRow(state.p) && readRow(state.q) && readRow(state[side]);
    if (!side) after[name] = value;
    if (!row) continue;
    const mine = 100 * Math.round(100 * value), rest = 10000 - mine;
    const weights = row.map((weight, i) => (i === Number(index) ? 0 : weight));
    if (sum(weights) <= 0) weights.forEach((_, i) => { weights[i] = Number(i !== Number(index)); });
    const total = sum(weights);
    let seen = 0, given = 0;
    after[side] = weights.map((weight, i) => {
      seen += weight;
      const upTo = Math.floor((rest * seen) / total + 0.5 + 1e-6);
      const units = i === Number(index) ? mine : upTo - given;
      given = upTo;
      return String(units / 10000);
    }).join(" ");
  }
  return after;
};

// The shell of every view: native, labelled controls above, the picture that Python drew below.
// A view that must follow a drag without lag puts its own functions into `local`.
const local = {};

function field(tag, properties, box) {
  const element = Object.assign(document.createElement(tag), properties);
  box.append(element);
  return element;
}

function number(element, options, label) {
  Object.assign(element, options);
  if (label) element.setAttribute("aria-label", label);
  return element;
}

// A number field: what is out of its range is said, and changes nothing.
function exactly(id, box, c, { put, get, say }) {
  const exact = number(field("input", { id, type: "number" }, box), c.options);
  const { min, max, step } = c.options;
  const wrong = `${c.label} goes from ${min} to ${max} in steps of ${step}.`;
  exact.addEventListener("input", () => {
    const good = exact.checkValidity();
    say(good ? "" : wrong);
    if (good && exact.value !== "") put(c.name, Number(exact.value));
  });
  exact.addEventListener("blur", () => {
    if (!exact.checkValidity()) say("");
    exact.value = get(c.name);
  });
  return exact;
}

// Each kind adds its elements to `box` and returns a function that shows a value.
const kinds = {
  range(box, id, c, { put, get, say }) {
    const slider = number(field("input", { type: "range" }, box), c.options, c.label + ", slider");
    slider.addEventListener("input", () => put(c.name, Number(slider.value)));
    const exact = exactly(id, box, c, { put, get, say });
    return (value) => {
      slider.value = value;
      if (document.activeElement !== exact) exact.value = value;
    };
  },
  stepper(box, id, c, { put, get, say }) {
    const step = (by) => {
      const to = Number(get(c.name)) + by;
      if (to >= c.options.min && to <= c.options.max) put(c.name, to);
    };
    const arrow = (text, word, by) => {
      const b = field("button", { type: "button", textContent: text }, box);
      b.setAttribute("aria-label", `${word} ${c.label}`);
      b.addEventListener("click", () => step(by));
      return b;
    };
    const back = arrow("\u25C0", "previous", -1);
    const exact = exactly(id, box, c, { put, get, say });
    const next = arrow("\u25B6", "next", 1);
    return (value) => {
      if (document.activeElement !== exact) exact.value = value;
      // Not `disabled`: a button that turns itself off would drop the keyboard's place.
      back.setAttribute("aria-disabled", value <= c.options.min);
      next.setAttribute("aria-disabled", value >= c.options.max);
    };
  },
  select(box, id, c, { put }) {
    const select = field("select", { id }, box);
    c.options.choices.forEach(([value, words], i) => select.append(new Option(words, i)));
    select.addEventListener("change", () => put(c.name, c.options.choices[select.value][0]));
    return (value) => {
      select.value = c.options.choices.findIndex((choice) => choice[0] === value);
    };
  },
  toggle(box, id, c, { put }) {
    const check = field("input", { id, type: "checkbox" }, box);
    check.addEventListener("change", () => put(c.name, check.checked));
    return (value) => { check.checked = value; };
  },
  text(box, id, c, { put }) {
    const line = field("input", { id, type: "text", spellcheck: false, size: c.options.size }, box);
    line.addEventListener("change", () => put(c.name, line.value));
    return (value) => { if (document.activeElement !== line) line.value = value; };
  },
  button(box, id, c, { put, get }) {
    const b = field("button", { id, type: "button", textContent: c.label }, box);
    b.addEventListener("click", () => put(c.name, Number(get(c.name)) + 1));
    return () => {};
  },
};

function control(c, id, state) {
  const box = document.createElement("div");
  box.className = `sd-control sd-${c.kind}`;
  if (c.kind !== "button") field("label", { htmlFor: id, textContent: c.label }, box);
  const show = kinds[c.kind](box, id, c, state);
  return { box, show: () => show(state.get(c.name)) };
}

// A clickable part says what it sets: data-set="row=2&token=5". Values take the type they have now.
function picked(element, state) {
  const changes = {};
  for (const [name, value] of new URLSearchParams(element.dataset.set)) {
    const now = typeof state[name];
    changes[name] = now === "number" ? Number(value) : now === "boolean" ? value === "true" : value;
  }
  return changes;
}

// A part to drag names a number and the heights it runs over: data-drag="p0" data-y="200,20"
// data-value="0,1", in the picture's own units.
function dragged(element, event, svg) {
  const box = svg.getBoundingClientRect();
  const y = ((event.clientY - box.top) * svg.viewBox.baseVal.height) / box.height;
  const [y0, y1] = element.dataset.y.split(",").map(Number);
  const [v0, v1] = element.dataset.value.split(",").map(Number);
  const share = Math.min(1, Math.max(0, (y - y0) / (y1 - y0)));
  return { [element.dataset.drag]: v0 + share * (v1 - v0) };
}

// The same part by keyboard: what a key makes of its number, or null for a key it does not take.
function nudged(element, key) {
  const [low, high] = element.dataset.value.split(",").map(Number);
  const steps = { ArrowUp: 1, ArrowRight: 1, ArrowDown: -1, ArrowLeft: -1, PageUp: 10,
    PageDown: -10, Home: -Infinity, End: Infinity };
  if (!(key in steps)) return null;
  const to = Number(element.dataset.now) + (steps[key] * (high - low)) / 100;
  return { [element.dataset.drag]: Math.min(high, Math.max(low, to)) };
}

// Makes the parts of a picture known to the keyboard and to those who do not see them.
function announce(picture) {
  for (const part of picture.querySelectorAll("[data-set], [data-drag]")) {
    part.setAttribute("tabindex", "0");
    part.setAttribute("role", "drag" in part.dataset ? "slider" : "button");
    if (!("drag" in part.dataset)) continue;
    const [low, high] = part.dataset.value.split(",");
    part.setAttribute("aria-valuemin", low);
    part.setAttribute("aria-valuemax", high);
    part.setAttribute("aria-valuenow", part.dataset.now);
  }
}

function render({ model, el }) {
  el.classList.add("sd-stage");
  el.setAttribute("role", "group");
  el.setAttribute("aria-label", model.get("label"));
  const get = (name) => model.get("state")[name];
  let waiting = null, slow = null;
  const send = () => {
    waiting = null;
    model.save_changes();
    // What was said last is about another state; a picture that takes long must not look finished.
    clearTimeout(slow);
    slow = setTimeout(() => {
      el.setAttribute("aria-busy", "true");
      words.textContent = "Computing \u2026";
      problem.textContent = "";
    }, 500);
  };
  const change = (changes) => {
    const before = model.get("state");
    if (Object.entries(changes).every(([name, value]) => before[name] === value)) return;
    const state = local.reduce ? local.reduce(before, changes) : { ...before, ...changes };
    model.set("state", state);
    if (!local.move) return send();
    words.textContent = local.move(state, picture);
    announce(picture);
    if (waiting === null) waiting = setTimeout(send, 150);
  };
  const put = (name, value) => change({ [name]: value });
  const say = (wrong) => { problem.textContent = wrong || model.get("problem"); };

  const bar = field("div", { className: "sd-controls" }, el);
  // Every stage loads this module anew, so a counter would give the same ids again.
  const stage = `sd-${Math.random().toString(36).slice(2)}`;
  const controls = model.get("controls").map((c, i) =>
    control(c, `${stage}-${i}`, { put, get, say }));
  bar.append(...controls.map((c) => c.box));
  const picture = field("div", { className: "sd-picture", tabIndex: 0 }, el);
  picture.setAttribute("role", "group");
  picture.setAttribute("aria-label", model.get("label") + ", picture");
  const words = field("p", { className: "sd-words" }, el);
  words.setAttribute("role", "status");
  const problem = field("p", { className: "sd-problem" }, el);
  problem.setAttribute("role", "alert");
  const details = field("details", { className: "sd-table" }, el);
  field("summary", { textContent: "As a table" }, details);
  const table = field("div", { tabIndex: 0 }, details);
  table.setAttribute("role", "group");
  table.setAttribute("aria-label", model.get("label") + ", table");

  const pick = (event) => {
    const part = event.target.closest("[data-set]");
    if (part) change(picked(part, model.get("state")));
    return part;
  };
  picture.addEventListener("click", pick);
  picture.addEventListener("keydown", (event) => {
    const part = event.target.closest("[data-drag]");
    const changes = part && nudged(part, event.key);
    if (changes) change(changes);
    const chosen = (event.key === "Enter" || event.key === " ") && pick(event);
    if (changes || chosen) event.preventDefault();
  });
  let held = null;
  picture.addEventListener("pointerdown", (event) => {
    held = event.isPrimary && event.button === 0 ? event.target.closest("[data-drag]") : null;
    if (!held) return;
    event.preventDefault();
    picture.setPointerCapture(event.pointerId);
  });
  picture.addEventListener("pointermove", (event) => {
    if (held) change(dragged(held, event, picture.querySelector("svg")));
  });
  for (const end of ["pointerup", "pointercancel"])
    picture.addEventListener(end, () => { held = null; });
  // JupyterLab has shortcuts of its own for letters and arrows; those with Ctrl or Cmd stay its.
  el.addEventListener("keydown", (event) => {
    if (!event.ctrlKey && !event.metaKey) event.stopPropagation();
  });

  const draw = () => {
    clearTimeout(slow);
    el.removeAttribute("aria-busy");
    const parts = () => [...picture.querySelectorAll("[data-set], [data-drag]")];
    const called = (part) => part.dataset.set ?? part.dataset.drag;
    const place = parts().indexOf(document.activeElement);
    const name = place >= 0 ? called(document.activeElement) : null;
    picture.innerHTML = model.get("svg") || model.get("table");
    announce(picture);
    if (place >= 0) {
      const now = parts();
      (now.find((p) => called(p) === name) ?? now[Math.min(place, now.length - 1)])?.focus();
    }
    words.textContent = model.get("sentence");
    problem.textContent = model.get("problem");
    table.innerHTML = model.get("table");
    details.hidden = !model.get("svg") || !model.get("table");
  };
  const show = () => controls.forEach((c) => c.show());
  // Python's answer is older than the hand while a change is on its way.
  const answer = () => { if (waiting === null) draw(); };
  model.on("change:drawn", answer);
  model.on("change:state", show);
  show();
  draw();
  return () => {
    model.off("change:drawn", answer);
    model.off("change:state", show);
    clearTimeout(waiting);
    clearTimeout(slow);
  };
}

export { local };
export default { render };

"use strict";
/* The controls: keys, pointers, sliders; what hurts the network; what the records say. */
const Controls = (() => {
  const {
    DATA, TOL, $, view, nets, own, samples, SHOWN, net, kind, side, number, phase, select, choose, wake,
    fromRest, advance, draw, redraw, requestDraw, drawSamples, analyse, contrast, learn, outputs, setTheme,
    say,
  } = Play;

  /* ---- hurting ---- */

  function gaussian() {
    return Math.sqrt(-2 * Math.log(1 - Math.random())) * Math.cos(2 * Math.PI * Math.random());
  }

  function shake() {
    if (view.settled && view.residual < TOL && !view.dead) {
      view.anchor = Engine.settle(net(), view.drives, { start: view.state, tol: 1e-13 }).state;
    }
    const size = number("noise");
    view.state = view.state.map((v, i) => (view.dead && view.dead[i] ? 0 : Math.tanh(Math.atanh(Math.max(-0.999999, Math.min(0.999999, v))) + size * gaussian())));
    view.marks.push(view.step);
    wake();
  }

  function kill() {
    const count = Math.round((number("dead") / 100) * net().n);
    const order = Array.from({ length: net().n }, (_, i) => [Math.random(), i]).sort((a, b) => a[0] - b[0]);
    view.dead = new Uint8Array(net().n);
    for (const [, i] of order.slice(0, count)) view.dead[i] = 1;
    hurt();
  }

  function toggle(neuron) {
    if (neuron < 0) return;
    view.dead = view.dead || new Uint8Array(net().n);
    view.dead[neuron] ^= 1;
    $("dead").value = (100 * view.dead.reduce((a, b) => a + b, 0)) / net().n;
    hurt();
  }

  function hurt() {
    if (view.dead && !view.dead.includes(1)) view.dead = null;
    view.anchor = null;
    if (view.dead) view.state = view.state.map((v, i) => (view.dead[i] ? 0 : v));
    view.marks.push(view.step);
    outputs();
    wake();
  }

  /* ---- drawing a digit ---- */

  function paint(x, y, ink) {
    const edge = side();
    const reach = Math.max(0.85, edge / 11);
    view.pixels = view.pixels.map((p, i) => {
      const far = Math.hypot((i % edge) + 0.5 - x, Math.floor(i / edge) + 0.5 - y);
      const share = Math.min(1, Math.max(0, 1.35 - far / reach));
      return ink ? Math.max(p, share) : Math.min(p, 1 - share);
    });
    drawn();
  }

  function drawn() {
    if (view.sample >= 0) {
      view.sample = -1;
      drawSamples();
    }
    analyse();
    wake();
  }

  function moveCursor(at, key, width, count) {
    const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -width, ArrowDown: width }[key];
    if (by === undefined) return null;
    const next = at + by;
    const sameRow = Math.floor(next / width) === Math.floor(at / width);
    return next < 0 || next >= count || (Math.abs(by) === 1 && !sameRow) ? at : next;
  }

  /* ---- controls ---- */

  const onInput = (id, act) => $(id).addEventListener("input", () => { outputs(); act(); });
  const onClick = (id, act) => $(id).addEventListener("click", act);

  function listen() {
    const tabs = [...document.querySelectorAll("[role=tab]")];
    tabs.forEach((tab, k) => {
      tab.addEventListener("click", () => select(tab.id.slice(4)));
      tab.addEventListener("keydown", (event) => {
        const to = { ArrowRight: k + 1, ArrowLeft: k - 1, Home: 0, End: tabs.length - 1 }[event.key];
        if (to === undefined) return;
        event.preventDefault();
        select(tabs[(to + tabs.length) % tabs.length].id.slice(4), true);
      });
    });
    onInput("speed", requestDraw);
    onInput("pace", requestDraw);
    onInput("beta", () => { contrast(); if (phase()) wake(); });
    for (const radio of document.querySelectorAll("input[name=phase]")) radio.addEventListener("change", wake);
    $("target").addEventListener("change", () => { view.target = number("target"); analyse(); wake(); });
    onClick("learn", learn);
    onClick("forget", () => { nets.digits = own.digits; $("forget").disabled = true; analyse(); wake(); });
    onInput("bound", wake);
    onInput("strength", wake);
    onInput("damping", wake);
    onInput("noise", () => {});
    onClick("shake", shake);
    onInput("dead", kill);
    onClick("heal", () => { view.dead = null; $("dead").value = 0; hurt(); });
    for (const radio of document.querySelectorAll("input[name=side]")) radio.addEventListener("change", fromRest);
    onInput("lines", fromRest);
    $("reveal").addEventListener("change", () => draw());
    onClick("restart", fromRest);
    onClick("pause", () => {
      view.paused = !view.paused;
      $("pause").setAttribute("aria-pressed", String(view.paused));
      if (!view.paused) wake();
      requestDraw();
    });
    onClick("step", () => {
      if (!view.paused) $("pause").click();
      view.settled = false;
      advance();
      draw();
      say(`Step ${view.step}: residual ${Drawing.short(view.residual)}.`);
    });
    onClick("clear", () => { view.pixels = new Float64Array(side() * side()); drawn(); });
    onClick("more", () => {
      const pages = Math.ceil(samples[kind()].length / SHOWN);
      view.page[kind()] = (view.page[kind()] + 1) % pages;
      choose(Math.max(0, view.sample));
    });
    $("samples").addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (button) choose([...$("samples").children].indexOf(button));
    });
    $("samples").addEventListener("keydown", (event) => {
      const count = $("samples").children.length;
      const at = [...$("samples").children].indexOf(document.activeElement);
      const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (by === undefined || at < 0) return;
      event.preventDefault();
      choose((at + by + count) % count, true);
    });
    onClick("theme", () => setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
    listenToPad();
    listenToField();
    window.addEventListener("resize", redraw);
  }

  function listenToPad() {
    const pad = $("pad");
    let ink = null;
    const at = (event) => {
      const box = pad.getBoundingClientRect();
      return [((event.clientX - box.left) / box.width) * side(), ((event.clientY - box.top) / box.height) * side()];
    };
    pad.addEventListener("pointerdown", (event) => {
      pad.setPointerCapture(event.pointerId);
      ink = event.button !== 2;
      paint(...at(event), ink);
      event.preventDefault();
    });
    pad.addEventListener("pointermove", (event) => { if (ink !== null) paint(...at(event), ink); });
    for (const end of ["pointerup", "pointercancel"]) pad.addEventListener(end, () => { ink = null; });
    pad.addEventListener("contextmenu", (event) => event.preventDefault());
    pad.addEventListener("keydown", (event) => {
      const next = moveCursor(view.cursor, event.key, side(), side() * side());
      if (next !== null) view.cursor = next;
      else if (event.key === " " || event.key === "Enter") paint((view.cursor % side()) + 0.5, Math.floor(view.cursor / side()) + 0.5, true);
      else if (event.key === "Backspace" || event.key === "Delete") paint((view.cursor % side()) + 0.5, Math.floor(view.cursor / side()) + 0.5, false);
      else return;
      event.preventDefault();
      draw();
    });
    for (const name of ["focus", "blur"]) pad.addEventListener(name, requestDraw);
  }

  function listenToField() {
    const field = $("field");
    field.addEventListener("pointerdown", (event) => {
      if (view.tab !== "hurt") return;
      const box = field.getBoundingClientRect();
      toggle(Drawing.neuronAt(field, net().data.layers, event.clientX - box.left, event.clientY - box.top));
    });
    field.addEventListener("keydown", (event) => {
      if (view.tab !== "hurt") return;
      const [layer] = net().data.layers;
      const next = moveCursor(view.place, event.key, layer.columns, layer.count);
      if (next !== null) view.place = next;
      else if (event.key === " " || event.key === "Enter") toggle(layer.order[view.place]);
      else return;
      event.preventDefault();
      draw();
    });
    for (const name of ["focus", "blur"]) field.addEventListener(name, requestDraw);
  }

  /* ---- what the records say ---- */

  function records() {
    const { record } = DATA.digits;
    const { certificate } = record;
    const proof = certificate.ok ? "agrees with the exact one" : "departs from the exact one";
    $("record").textContent = `The network was trained by equilibrium propagation on ${DATA.digits.task}: ${(100 * record.test_accuracy).toFixed(1)} % of ${record.test_samples} test pictures right, chance ${(100 * record.chance).toFixed(1)} %. Its gradient ${proof}: smallest cosine ${certificate.worst_cosine.toFixed(6)} over ${certificate.samples} samples; norm of the recurrent weights ${record.lipschitz.toFixed(3)}, at most ${record.steps} steps to a residual of ${Drawing.short(record.tol)}.`;
    const other = DATA.hidden.record;
    $("record-hidden").textContent = `The network that sees what is covered: with the lower half covered, the error of its pixels on ${other.test_samples} test pictures is ${other.hidden_error.toFixed(3)} when settled, ${other.hidden_error_first_step.toFixed(3)} after one step, ${other.hidden_error_mean_picture.toFixed(3)} by the mean picture; the smallest cosine of its gradient with the exact one is ${other.certificate.worst_cosine.toFixed(6)}.`;
    $("command").textContent = record.command;
    if (other.command !== record.command) $("command-hidden").textContent = other.command;
    $("version").textContent = DATA.version;
    $("count").textContent = String(nets.digits.n);
    $("lines-shown").textContent = String(Math.min(Nudging.LINES, (nets.digits.n * (nets.digits.n - 1)) / 2));
  }

  function begin() {
    records();
    $("target").replaceChildren(...DATA.digits.labels.map((label, k) => new Option(label, k)));
    $("bars").replaceChildren(...DATA.digits.labels.map((label) => {
      const row = document.createElement("li");
      row.innerHTML = `<span></span><span class="bar"><i></i></span><span class="share"></span>`;
      row.firstChild.textContent = label;
      return row;
    }));
    const dark = window.matchMedia("(prefers-color-scheme: dark)");
    setTheme(dark.matches ? "dark" : "light");
    dark.addEventListener("change", () => setTheme(dark.matches ? "dark" : "light"));
    listen();
    const wanted = location.hash.slice(1);
    select(document.getElementById(`tab-${wanted}`) ? wanted : "settle");
  }

  begin();
  return { shake, toggle };
})();

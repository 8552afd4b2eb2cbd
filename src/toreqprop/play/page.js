"use strict";
/* The page: what is shown, and the loop that relaxes it; controls.js has the controls. */
const Play = (() => {
  const $ = (id) => document.getElementById(id);
  const DATA = JSON.parse($("networks").textContent);
  const TOL = 1e-7; // where the page calls it settled
  const LIMIT = 600; // steps after which it is said not to settle
  const WINDOW = 240; // steps the curves show
  const CALM = 4; // steps a second while it flips back and forth: never more than three flashes
  const still = window.matchMedia("(prefers-reduced-motion: reduce)");
  const nets = { digits: Engine.network(DATA.digits), hidden: Engine.network(DATA.hidden) };
  const own = { digits: nets.digits };
  const samples = Object.fromEntries(
    Object.entries(nets).map(([name, net]) => [name, readSamples(net.data.samples)])
  );
  const scaling = {
    gain: new Float32Array(Engine.bytes(DATA.digits.scaling.gain).buffer),
    shift: new Float32Array(Engine.bytes(DATA.digits.scaling.shift).buffer),
  };

  const view = {
    tab: "settle", pixels: null, sample: 3, page: { digits: 0, hidden: 0 }, target: 0,
    drives: null, state: null, before: null, change: null, step: 0, residual: Infinity,
    residuals: [], energies: [], marks: [], paused: false, settled: false, dead: null, anchor: null,
    cursor: 0, place: 0, first: null, nudge: null, now: null, owed: 0, last: 0,
  };

  const net = () => nets[view.tab === "hide" ? "hidden" : "digits"];
  const kind = () => (view.tab === "hide" ? "hidden" : "digits");
  const side = () => net().data.samples.side;
  const number = (id) => Number($(id).value);
  const phase = () => Number(document.querySelector("input[name=phase]:checked").value);
  const beta = () => 10 ** number("beta");
  const strength = () => (view.tab !== "unbind" || $("bound").checked ? 1 : number("strength"));

  function readSamples({ labels, pixels, peak, side: edge }) {
    const raw = Engine.bytes(pixels);
    return labels.map((label, k) => ({
      label,
      pixels: Float64Array.from(raw.subarray(k * edge * edge, (k + 1) * edge * edge), (v) => v / peak),
    }));
  }

  /* ---- what the network is given ---- */

  function cover() {
    const edge = side();
    const lines = number("lines");
    const where = document.querySelector("input[name=side]:checked").value;
    return Float64Array.from({ length: edge * edge }, (_, i) => {
      const [row, column] = [Math.floor(i / edge), i % edge];
      const depth = { bottom: edge - 1 - row, top: row, left: column, right: edge - 1 - column }[where];
      return depth < lines ? 1 : 0;
    });
  }

  function input() {
    if (view.tab !== "hide") return view.pixels.map((p, i) => p * scaling.gain[i] - scaling.shift[i]);
    const hidden = cover();
    const seen = view.pixels.map((p, i) => (2 * p - 1) * (1 - hidden[i]));
    return Float64Array.from([...seen, ...hidden]);
  }

  function options() {
    const found = { strength: strength(), dead: view.tab === "hurt" ? view.dead : null };
    found.damping = number(view.tab === "unbind" ? "damping" : "pace");
    if (view.tab === "nudge" && phase() && view.nudge) {
      found.push = view.nudge.direction.map((g) => phase() * beta() * g);
    }
    return found;
  }

  /* ---- relaxation ---- */

  function fromRest() {
    view.state = new Float64Array(net().n);
    view.residuals = [];
    view.energies = [];
    view.marks = [];
    view.step = 0;
    view.first = null;
    wake();
  }

  function wake() {
    view.drives = Engine.drive(net(), input());
    view.settled = false;
    view.since = 0;
    view.before = view.state;
    if (still.matches) {
      for (let k = 0; k < LIMIT && !view.settled && !view.paused; k++) advance();
      speak();
    } else if (!view.paused) say("Settling …");
    requestDraw();
  }

  function advance() {
    const given = options();
    const next = Engine.step(net(), view.drives, view.state, given);
    view.before = view.state;
    view.change = next.state.map((v, i) => v - view.state[i]);
    view.state = next.state;
    view.residual = next.residual;
    view.step++;
    view.since++;
    view.residuals.push(next.residual);
    view.energies.push(Engine.energy(net(), view.drives, view.state, given));
    if (view.step === 1) view.first = Engine.image(net(), view.drives, new Float64Array(net().n), given).state;
    if (next.residual < TOL || view.since >= LIMIT) {
      view.settled = true;
      speak();
    }
  }

  const flipping = () => view.since > 12 && view.residual > 0.05;

  let asked = 0;
  function requestDraw() {
    if (!asked) asked = requestAnimationFrame(frame);
  }

  function frame(time) {
    asked = 0;
    const running = !view.settled && !view.paused && !still.matches;
    let share = 1;
    if (running) {
      const rate = flipping() ? Math.min(CALM, number("speed")) : number("speed");
      view.owed += Math.min(0.25, (time - (view.last || time)) / 1000) * rate;
      while (view.owed >= 1 && !view.settled) {
        advance();
        view.owed -= 1;
      }
      share = Math.min(1, view.owed);
    }
    view.last = running ? time : 0;
    draw(running ? share : 1);
    if (running) requestDraw();
  }

  /* ---- drawing ---- */

  function draw(share = 1) {
    const { data } = net();
    const eased = share < 1 && view.before ? view.state.map((v, i) => view.before[i] + (v - view.before[i]) * share) : view.state;
    const atField = document.activeElement === $("field");
    Drawing.field($("field"), data.layers, eased, {
      change: view.settled ? null : view.change,
      dead: view.tab === "hurt" ? view.dead : null,
      cursor: atField && view.tab === "hurt" ? data.layers[0].order[view.place] : -1,
    });
    const hidden = view.tab === "hide" ? cover() : null;
    Drawing.picture($("pad"), view.pixels, side(), {
      cover: hidden, reveal: $("reveal").checked, cursor: document.activeElement === $("pad") ? view.cursor : -1,
    });
    const first = Math.max(0, view.step - WINDOW);
    const marks = view.marks;
    Drawing.curve($("residual"), view.residuals.slice(first), { log: true, level: TOL, first, marks });
    Drawing.curve($("energy"), view.energies.slice(first), { first, marks, colour: "pos" });
    $("clock").textContent = `step ${view.step}`;
    if (hidden) drawSeen(eased, hidden);
    else drawBars(Engine.softmax(Engine.readout(net(), eased)));
  }

  function drawBars(chances) {
    const best = chances.indexOf(Math.max(...chances));
    [...$("bars").children].forEach((row, k) => {
      row.classList.toggle("best", k === best);
      row.querySelector("i").style.transform = `scaleX(${chances[k].toFixed(4)})`;
      row.querySelector(".share").textContent = percent(chances[k]);
    });
  }

  const seen = (state) => Engine.readout(nets.hidden, state).map((v) => (v + 1) / 2);

  function drawSeen(state, hidden) {
    const guess = seen(state);
    Drawing.picture($("filled"), guess.map((v, i) => (hidden[i] ? v : view.pixels[i])), side(), { outline: hidden });
    const wrong = (values) => {
      let [sum, count] = [0, 0];
      values.forEach((v, i) => {
        sum += hidden[i] * (v - view.pixels[i]) ** 2;
        count += hidden[i];
      });
      return count ? Math.sqrt(sum / count).toFixed(2) : "0";
    };
    const start = view.first ? wrong(seen(view.first)) : "–";
    $("seen-text").innerHTML = `Error of the covered pixels<br><b>${wrong(guess)}</b> now<br>${start} at first<br>${wrong(nets.hidden.data.mean)} for the mean of all digits`;
  }

  const percent = (share) => `${(100 * share).toFixed(share > 0.9995 ? 0 : 1)}\u00a0%`;

  /* One sentence, also for those who listen. */
  function speak() {
    const steps = view.since === 1 ? "one step" : `${view.since} steps`;
    const settled = view.since === 1 ? "Settled already" : `Settled in ${steps}`; // a change of tab is no new start
    const away = view.residual > 1e-2 ? view.residual.toFixed(2) : Drawing.short(view.residual);
    if (view.residual >= TOL) {
      return say(`It does not settle: after ${steps} neurons still change by ${away} of their activity.`);
    }
    if (view.tab === "hide") return say(`${settled}.`);
    const chances = Engine.softmax(Engine.readout(net(), view.state));
    const best = chances.indexOf(Math.max(...chances));
    const answer = `${net().data.labels[best]} (${percent(chances[best])})`;
    const lost = view.tab === "hurt" && view.dead ? view.dead.reduce((a, b) => a + b, 0) : 0;
    if (lost) return say(`${settled} without ${lost} of ${net().n} neurons. The answer is ${answer}.`);
    if (view.tab === "hurt" && view.anchor) {
      const far = Engine.norm(view.state.map((v, i) => v - view.anchor[i]));
      return say(`Back in ${steps}, ${far < 1e-15 ? "exactly" : `within ${far.toExponential(0)} of`} where it was. The answer is ${answer}.`);
    }
    return say(`${settled}. The answer is ${answer}.`);
  }

  function say(sentence) {
    if ($("status").textContent !== sentence) $("status").textContent = sentence;
  }

  /* ---- the nudge ---- */

  function analyse() {
    const shown = view.tab === "nudge";
    for (const id of ["nudge-figures", "parting"]) $(id).hidden = !shown;
    $("curves").hidden = shown;
    if (view.tab !== "nudge") return;
    view.nudge = Nudging.analyse(nets.digits, input(), view.target);
    contrast();
  }

  function contrast() {
    if (!view.nudge) return;
    view.now = Nudging.contrast(view.nudge, beta());
    Nudging.draw(view.nudge, view.now);
  }

  function learn() {
    const rate = 0.2;
    nets.digits = Engine.learn(nets.digits, view.now.gradient, view.nudge.free, view.nudge.error, rate);
    $("forget").disabled = false;
    const before = view.nudge.value;
    analyse();
    wake();
    say(`Every weight took one step against its local update: the loss went from ${before.toPrecision(3)} to ${view.nudge.value.toPrecision(3)}.`);
  }

  /* ---- choosing ---- */

  const SHOWN = 20; // samples at a time
  const shown = () => samples[kind()].slice(view.page[kind()] * SHOWN, (view.page[kind()] + 1) * SHOWN);

  function choose(index, focus = false) {
    view.sample = index;
    const found = shown()[index];
    view.pixels = found.pixels.slice();
    setTarget(found.label);
    drawSamples();
    if (focus) $("samples").children[index].focus();
    analyse();
    fromRest();
  }

  function setTarget(label) {
    view.target = label;
    $("target").value = String(label);
  }

  function drawSamples() {
    const list = shown();
    if ($("samples").children.length !== list.length) {
      $("samples").replaceChildren(...list.map(() => {
        const button = document.createElement("button");
        button.type = "button";
        button.setAttribute("role", "radio");
        button.append(document.createElement("canvas"));
        return button;
      }));
    }
    [...$("samples").children].forEach((button, k) => {
      const chosen = k === view.sample;
      button.setAttribute("aria-checked", String(chosen));
      button.tabIndex = chosen || (view.sample < 0 && k === 0) ? 0 : -1;
      button.setAttribute("aria-label", `Sample of ${net().data.labels[list[k].label]}`);
      Drawing.picture(button.firstChild, list[k].pixels, side());
    });
  }

  function select(name, focus = false) {
    const before = kind();
    for (const tab of document.querySelectorAll("[role=tab]")) {
      const chosen = tab.id === `tab-${name}`;
      tab.setAttribute("aria-selected", String(chosen));
      tab.tabIndex = chosen ? 0 : -1;
      if (chosen && focus) tab.focus();
      $(tab.getAttribute("aria-controls")).hidden = !chosen;
    }
    view.tab = name;
    view.dead = null;
    view.anchor = null;
    $("dead").value = 0;
    $("bound").checked = true;
    document.querySelector("input[name=phase][value='0']").checked = true;
    $("bars").hidden = name === "hide";
    $("seen").hidden = name !== "hide";
    $("stage").hidden = name === "maze";
    $("maze-stage").hidden = name !== "maze";
    Maze.show(name === "maze");
    if (name === "maze") {
      $("nudge-figures").hidden = true;
      view.settled = true;
      return undefined;
    }
    $("h-answer").textContent = name === "hide" ? "What it sees" : "Answer";
    $("h-field").textContent = `${net().n} neurons`;
    const field = $("field");
    field.tabIndex = name === "hurt" ? 0 : -1;
    field.setAttribute("role", name === "hurt" ? "application" : "img");
    field.setAttribute("aria-label", name === "hurt"
      ? "The neurons: arrow keys move, space lets one die or live again" : `${net().n} neurons, coloured by their activity`);
    $("pad").setAttribute("aria-label", `Drawing pad of ${side()} by ${side()} pixels: arrow keys move, space draws, backspace erases`);
    outputs();
    if (before !== kind() || view.pixels === null) {
      $("samples").replaceChildren();
      return choose(Math.max(0, view.sample));
    }
    analyse();
    return wake();
  }

  /* What the sliders say. */
  function outputs() {
    const write = (id, text) => {
      document.querySelector(`output[for=${id}]`).textContent = text;
      $(id).setAttribute("aria-valuetext", text);
    };
    write("speed", $("speed").value);
    write("beta", beta().toPrecision(2));
    write("strength", `${number("strength")}`);
    write("pace", `${number("pace")}`);
    write("damping", `${number("damping")}`);
    write("noise", `${number("noise")}`);
    write("dead", `${view.dead ? view.dead.reduce((a, b) => a + b, 0) : 0} of ${net().n}`);
    write("lines", $("lines").value);
    const norm = Engine.spectralNorm(nets.digits) * (view.tab === "unbind" ? number("strength") : 1);
    const bound = nets.digits.radius;
    $("norm").textContent = $("bound").checked && norm > bound * 1.001
      ? `${norm.toFixed(2)}, bounded to ${bound}` : norm.toFixed(2);
  }

  function setTheme(theme) {
    document.documentElement.dataset.theme = theme;
    $("theme").textContent = theme === "dark" ? "Light" : "Dark";
    $("theme").setAttribute("aria-label", `Show the page in ${theme === "dark" ? "light" : "dark"} colours`);
    Drawing.readColours();
    redraw();
  }

  function redraw() {
    Maze.redraw();
    if (!view.pixels) return;
    drawSamples();
    draw();
    if (view.nudge && view.tab === "nudge") Nudging.draw(view.nudge, view.now);
  }

  return {
    DATA, TOL, $, still, view, nets, own, samples, SHOWN, net, kind, side, number, phase, input, select, choose,
    wake, fromRest, advance, draw, redraw, requestDraw, drawSamples, analyse, contrast, learn, outputs,
    setTheme, say,
  };
})();

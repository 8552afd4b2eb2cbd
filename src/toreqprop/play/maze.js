"use strict";
/* The maze: a map that settles, its own loop, its own controls. */
const Maze = (() => {
  const { DATA, $, still } = Play;
  const TOL = 1e-7;
  const LIMIT = 3000;
  const net = Maps.network(DATA.maze, Engine.bytes);
  const view = { maze: null, example: 0, state: null, drives: null, step: 0, residual: Infinity,
    residuals: [], energies: [], settled: false, paused: false, shown: false, cursor: 0, owed: 0, last: 0 };
  const side = () => view.maze.side;

  const examples = DATA.maze.mazes.map(({ side: edge, walls, marks }) => ({ side: edge, walls: Engine.bytes(walls), marks }));

  function input() {
    const cells = side() * side();
    const x = new Float64Array(2 * cells);
    for (let p = 0; p < cells; p++) x[p] = view.maze.walls[p] ? 1 : 0;
    for (const mark of view.maze.marks) x[cells + mark] = 1;
    return x;
  }

  /* Every cell begins active (or not, as the network was trained). */
  function restart() {
    view.drives = Maps.drive(net, input(), side());
    view.state = Maps.start(net, side());
    view.step = 0;
    view.residual = Infinity;
    view.residuals = [];
    view.energies = [];
    view.settled = false;
    if (still.matches) {
      while (!view.settled && !view.paused) advance();
    } else say("Settling …");
    requestDraw();
  }

  function advance() {
    const next = Maps.step(net, view.drives, view.state, side());
    view.state = next.state;
    view.residual = next.residual;
    view.step++;
    view.residuals.push(next.residual);
    view.energies.push(Maps.energy(net, view.drives, view.state, side()));
    if (next.residual < TOL || view.step >= LIMIT) {
      view.settled = true;
      speak();
    }
  }

  let asked = 0;
  function requestDraw() {
    if (!asked) asked = requestAnimationFrame(frame);
  }

  function frame(time) {
    asked = 0;
    if (!view.shown) return;
    const running = !view.settled && !view.paused && !still.matches;
    if (running) {
      view.owed += Math.min(0.25, (time - (view.last || time)) / 1000) * Number($("maze-speed").value);
      while (view.owed >= 1 && !view.settled) {
        advance();
        view.owed -= 1;
      }
    }
    view.last = running ? time : 0;
    draw();
    if (running) requestDraw();
  }

  function draw() {
    const cursor = document.activeElement === $("maze-field") ? view.cursor : -1;
    Drawing.maze($("maze-field"), view.maze, Maps.readout(net, view.state, side()), cursor);
    Drawing.curve($("maze-residual"), view.residuals, { log: true, level: TOL });
    Drawing.curve($("maze-energy"), view.energies, { colour: "pos" });
    $("maze-clock").textContent = `step ${view.step}`;
  }

  function speak() {
    if (view.residual >= TOL) return say(`It has not settled after ${view.step} steps.`);
    const [from, to] = view.maze.marks;
    const way = Maps.way(view.maze.walls, side(), from, to);
    const right = new Uint8Array(side() * side());
    for (const cell of way) right[cell] = 1;
    const chances = Maps.readout(net, view.state, side());
    let [wrong, open] = [0, 0];
    chances.forEach((p, cell) => {
      if (view.maze.walls[cell]) return;
      open++;
      wrong += Number(p > 0.5 !== Boolean(right[cell]));
    });
    if (wrong) return say(`Settled in ${view.step} steps. ${wrong} of ${open} open cells are not as on the shortest way.`);
    if (!way.length) return say(`Settled in ${view.step} steps: there is no way, and no cell claims to be on one.`);
    return say(`Settled in ${view.step} steps. It found the way, ${way.length} cells long; all ${open} open cells are right.`);
  }

  const say = (sentence) => { $("maze-status").textContent = sentence; };
  const size = () => Number(document.querySelector("input[name=size]:checked").value);

  function take(maze) {
    view.maze = { ...maze, walls: maze.walls.slice() };
    view.cursor = maze.marks[0];
    $("maze-field").setAttribute("aria-label", `A maze of ${side()} by ${side()} cells: arrow keys move, space sets a wall or takes it away`);
    restart();
  }

  /* The first of a size is a test maze, as the library has it; the others are drawn here. */
  const first = () => take(examples.find((m) => m.side === size()));

  function toggle(cell) {
    const [row, column] = [Math.floor(cell / side()), cell % side()];
    const edge = Math.min(row, column, side() - 1 - row, side() - 1 - column) === 0;
    if (edge || view.maze.marks.includes(cell)) return;
    view.maze.walls[cell] ^= 1;
    restart();
  }

  function show(shown) {
    view.shown = shown;
    if (!shown) return;
    if (view.maze) restart();
    else first();
  }

  function listen() {
    for (const radio of document.querySelectorAll("input[name=size]")) radio.addEventListener("change", first);
    $("maze-new").addEventListener("click", () => take(Maps.random(size())));
    $("maze-restart").addEventListener("click", restart);
    $("maze-pause").addEventListener("click", () => {
      view.paused = !view.paused;
      $("maze-pause").setAttribute("aria-pressed", String(view.paused));
      while (still.matches && !view.settled && !view.paused) advance();
      requestDraw();
    });
    $("maze-step").addEventListener("click", () => {
      if (!view.paused) $("maze-pause").click();
      if (!view.settled) advance();
      draw();
    });
    $("maze-speed").addEventListener("input", () => {
      document.querySelector("output[for=maze-speed]").textContent = $("maze-speed").value;
    });
    $("maze-field").addEventListener("pointerdown", (event) => {
      const box = $("maze-field").getBoundingClientRect();
      const at = (v) => Math.min(side() - 1, Math.floor((v / box.width) * side()));
      toggle(at(event.clientY - box.top) * side() + at(event.clientX - box.left));
    });
    $("maze-field").addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -side(), ArrowDown: side() }[event.key];
      if (by !== undefined) view.cursor = Math.min(side() ** 2 - 1, Math.max(0, view.cursor + by));
      else if (event.key === " " || event.key === "Enter") toggle(view.cursor);
      else return;
      event.preventDefault();
      requestDraw();
    });
    for (const name of ["focus", "blur"]) $("maze-field").addEventListener(name, requestDraw);
    const { record } = DATA.maze;
    const shares = record.sides.map((edge, k) => `${record.exact[k]} % of ${edge}×${edge}`).join(", ");
    if (record.command !== DATA.digits.record.command) $("command-maze").textContent = record.command;
    $("record-maze").textContent = `The map of the maze has ${record.parameters} numbers and was trained by equilibrium propagation on mazes of ${record.trained_on}×${record.trained_on} cells alone. With every open cell right it solves ${shares} test mazes, ${record.test_samples} of each. Nothing bounds its weights, and its gradient ${record.certificate.ok ? "agrees with" : "departs from"} the exact one: smallest cosine ${record.certificate.worst_cosine.toFixed(3)} over ${record.certificate.samples} mazes.`;
  }

  listen();
  return { view, net, show, redraw: () => { if (view.shown) draw(); }, input };
})();

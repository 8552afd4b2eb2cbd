"use strict";
/* What the nudge does: equilibria at plus and minus beta, the update they give, its angle to the
   exact gradient. `analyse` computes, `draw` draws. */
const Nudging = (() => {
  const GRID = Array.from({ length: 15 }, (_, k) => 10 ** (-3 + 0.25 * k));
  const LINES = 260; // weights whose update is drawn
  const TIGHT = { tol: 1e-12, maxSteps: 4000 };

  /* All that does not depend on the slider. */
  function analyse(net, x, target) {
    const drives = Engine.drive(net, x);
    const free = Engine.settle(net, drives, TIGHT).state;
    const { value, error, cotangent } = Engine.loss(net, free, target);
    const { direction, scale } = Engine.normalise(net, cotangent);
    const exact = Engine.exact(net, x, free, cotangent);
    const found = { net, x, target, drives, free, value, error, direction, scale, exact };
    // The response to a weak push is minus the adjoint, per unit of the normalised direction.
    const response = exact.bias.map((v) => -v / scale);
    const size = Engine.norm(response);
    found.along = response.map((v) => v / (size || 1));
    found.slope = size;
    found.grid = GRID.map((beta) => contrast(found, beta));
    found.across = acrossDirection(found);
    return found;
  }

  /* Both nudged equilibria at one beta, the gradient they give, its angle. */
  function contrast(found, beta) {
    const options = { ...TIGHT, start: found.free };
    const up = Engine.nudged(found.net, found.drives, found.direction, beta, options).state;
    const down = Engine.nudged(found.net, found.drives, found.direction, -beta, options).state;
    const gradient = Engine.contrast(found.net, found.x, up, down, beta, found.scale);
    return { beta, up, down, gradient, angle: Engine.angle(gradient, found.exact) };
  }

  /* The direction, square to the straight one, into which the path of equilibria bends most. */
  function acrossDirection(found) {
    const last = found.grid[found.grid.length - 1];
    const bend = last.up.map((v, i) => v + last.down[i] - 2 * found.free[i]);
    const share = Engine.dot(bend, found.along);
    const rest = bend.map((v, i) => v - share * found.along[i]);
    const size = Engine.norm(rest);
    return rest.map((v) => v / (size || 1));
  }

  function place(found, state) {
    const moved = state.map((v, i) => v - found.free[i]);
    return [Engine.dot(moved, found.along), Engine.dot(moved, found.across)];
  }

  function drawPath(canvas, found, now) {
    const at = Drawing.context(canvas);
    if (!at) return;
    const { pen, width, height } = at;
    const colours = Drawing.colours();
    const shown = [...found.grid.filter((g) => g.beta < now.beta), now];
    const points = [
      ...shown.slice().reverse().map((g) => place(found, g.down)),
      [0, 0],
      ...shown.map((g) => place(found, g.up)),
    ];
    const reach = Math.max(...points.map(([a, b]) => Math.max(Math.abs(a), 1.6 * Math.abs(b))), 1e-9);
    const zoom = (0.43 * width) / reach;
    const put = ([a, b]) => [width / 2 + zoom * a, height / 2 - zoom * b];
    const straight = now.beta * found.slope;
    pen.setLineDash([4, 4]);
    pen.strokeStyle = colours.soft;
    pen.lineWidth = 1.2;
    const [from, to] = [put([-straight, 0]), put([straight, 0])].map(([a]) => Math.min(width - 4, Math.max(4, a)));
    Drawing.line(pen, from, height / 2, to, height / 2);
    pen.setLineDash([]);
    Drawing.trace(pen, points.map(put), colours.accent, { dot: false, width: 2 });
    const ends = [
      [now.down, colours.down, "−β"],
      [found.free, colours.ink, "free"],
      [now.up, colours.up, "+β"],
    ];
    pen.font = "600 12px system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif";
    for (const [state, colour, name] of ends) {
      const [a, b] = put(place(found, state));
      pen.fillStyle = colours.card;
      Drawing.disc(pen, a, b, 8);
      pen.fillStyle = colour;
      Drawing.disc(pen, a, b, 5.5);
      pen.textAlign = "center";
      pen.fillText(name, Math.min(width - 14, Math.max(14, a)), b > height / 2 + 3 ? b + 24 : b - 14);
    }
    pen.font = "11px system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif";
    pen.fillStyle = colours.soft;
    pen.textAlign = "left";
    pen.fillText(`± ${Drawing.short(Number(reach.toPrecision(2)))} across the plot`, 2, height - 4);
  }

  function drawAngles(canvas, found, now) {
    const at = Drawing.context(canvas);
    if (!at) return;
    const { pen, width, height } = at;
    const colours = Drawing.colours();
    const box = { left: 44, right: width - 8, top: 8, bottom: height - 18 };
    const values = [...found.grid.map((g) => g.angle), now.angle].filter((v) => v > 0);
    const low = Math.floor(Math.log10(Math.min(...values, 1)));
    const high = Math.max(low + 1, Math.ceil(Math.log10(Math.max(...values, 1e-6))));
    const x = (beta) => box.left + ((Math.log10(beta) + 3) / 3.5) * (box.right - box.left);
    const y = (v) => box.bottom - ((Math.log10(v) - low) / (high - low)) * (box.bottom - box.top);
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    const every = Math.max(1, Math.ceil((high - low) / 4));
    for (let k = high; k >= low; k -= every) {
      pen.strokeStyle = colours.line;
      pen.lineWidth = 1;
      Drawing.line(pen, box.left, y(10 ** k), box.right, y(10 ** k));
      pen.fillStyle = colours.soft;
      pen.fillText(`${Drawing.short(10 ** k)}°`, box.left - 6, y(10 ** k));
    }
    pen.textBaseline = "alphabetic";
    pen.textAlign = "center";
    for (const beta of [0.001, 0.01, 0.1, 1]) pen.fillText(`β ${beta}`, Math.max(x(beta), box.left + 12), height - 3);
    Drawing.trace(pen, found.grid.filter((g) => g.angle > 0).map((g) => [x(g.beta), y(g.angle)]), colours.accent, { dot: false });
    if (now.angle > 0) {
      pen.fillStyle = colours.up;
      Drawing.disc(pen, x(now.beta), y(now.angle), 5);
    }
  }

  /* Where a symmetric matrix is largest, above its diagonal; the largest last. */
  function largest(matrix, n) {
    const places = [];
    for (let i = 0; i < n; i++) for (let j = i + 1; j < n; j++) places.push(i * n + j);
    return places.sort((a, b) => Math.abs(matrix[a]) - Math.abs(matrix[b])).slice(-LINES);
  }

  const degrees = (angle) => `${angle >= 0.1 ? angle.toPrecision(3) : angle.toExponential(1).replace("e-", "e−")}°`;

  function draw(found, now) {
    const $ = (id) => document.getElementById(id);
    const { net } = found;
    drawPath($("path"), found, now);
    const moves = [now.up, now.down].map((s) => s.map((v, i) => v - found.free[i]));
    const most = Math.max(...moves.map((m) => m.reduce((a, v) => Math.max(a, Math.abs(v)), 0)), 1e-12);
    Drawing.field($("moved-up"), net.data.layers, moves[0], { scale: most });
    Drawing.field($("moved-down"), net.data.layers, moves[1], { scale: most });
    const updates = [now.gradient, found.exact].map((g) => g.recurrent.map((v) => -v));
    const peak = updates[1].reduce((a, v) => Math.max(a, Math.abs(v)), 1e-300);
    Drawing.web($("update"), net.data.layers, updates[0], largest(updates[0], net.n), peak);
    Drawing.web($("truth"), net.data.layers, updates[1], largest(updates[1], net.n), peak);
    drawAngles($("angles"), found, now);
    $("moved-text").textContent = `Full colour is a move of ${Drawing.short(Number(most.toPrecision(2)))}. The two are nearly mirror images; what differs is what a finite nudge gets wrong.`;
    for (const id of ["angle", "angle-now"]) $(id).textContent = degrees(now.angle);
    $("path").setAttribute("aria-label", `Equilibria at plus and minus beta ${now.beta.toPrecision(2)} on either side of the free one`);
    $("moved-up").setAttribute("aria-label", "Displacement of every neuron at plus beta");
    $("moved-down").setAttribute("aria-label", "Displacement of every neuron at minus beta");
    $("update").setAttribute("aria-label", `Update of ${net.n} by ${net.n} weights by equilibrium propagation`);
    $("truth").setAttribute("aria-label", "The exact update of the same weights");
    $("angles").setAttribute("aria-label", `Angle to the exact gradient against beta; now ${degrees(now.angle)}`);
  }

  return { analyse, contrast, draw, LINES };
})();

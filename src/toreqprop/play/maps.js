"use strict";
/* A map of sigmoid neurons that listen to their neighbours: s = g(K * s + D * x + b) with
   g(u) = 1/(1 + exp(2 - 4u)), a few channels in every cell. No drawing, no document.
   Its energy is E = sum(s/2 + (s log s + (1 - s) log(1 - s))/4) - drive.s - s.(K*s)/2. */
const Maps = (() => {
  /* The exported data as arrays of numbers, in double precision. */
  function network(data, bytes) {
    const doubles = (text) => Float64Array.from(new Float32Array(bytes(text).buffer));
    const weights = Object.fromEntries(Object.entries(data.weights).map(([k, v]) => [k, doubles(v)]));
    return { ...data, ...weights };
  }

  /* Cross-correlation with zeros outside, added to `found`: planes of side by side numbers. */
  function correlate(kernel, size, image, from, into, side, found) {
    const half = (size - 1) / 2;
    for (let b = 0; b < into; b++) {
      for (let a = 0; a < from; a++) {
        for (let i = 0; i < size; i++) {
          for (let j = 0; j < size; j++) {
            const weight = kernel[((b * from + a) * size + i) * size + j];
            if (!weight) continue;
            const [down, right] = [i - half, j - half];
            const [top, bottom] = [Math.max(0, -down), Math.min(side, side - down)];
            const [left, end] = [Math.max(0, -right), Math.min(side, side - right)];
            for (let y = top; y < bottom; y++) {
              const to = (b * side + y) * side;
              const at = (a * side + y + down) * side + right;
              for (let x = left; x < end; x++) found[to + x] += weight * image[at + x];
            }
          }
        }
      }
    }
    return found;
  }

  /* What walls and marks do to every neuron: planes of `inputs` images. */
  function drive(net, x, side) {
    const found = new Float64Array(net.channels * side * side);
    for (let c = 0; c < net.channels; c++) {
      found.fill(net.bias[c], c * side * side, (c + 1) * side * side);
    }
    return correlate(net.drive, net.size, x, net.inputs, net.channels, side, found);
  }

  const start = (net, side) => new Float64Array(net.channels * side * side).fill(net.start);

  const fed = (net, state, side) =>
    correlate(net.kernel, net.size, state, net.channels, net.channels, side, new Float64Array(state.length));

  /* One evaluation of the map; the residual is relative to the activity. */
  function step(net, drives, state, side) {
    const found = fed(net, state, side);
    let gap = 0;
    let size = 0;
    for (let i = 0; i < found.length; i++) {
      found[i] = 1 / (1 + Math.exp(2 - 4 * (found[i] + drives[i])));
      gap += (found[i] - state[i]) ** 2;
      size += found[i] ** 2;
    }
    return { state: found, residual: Math.sqrt(gap) / Math.max(Math.sqrt(size), 1e-3 * Math.sqrt(found.length)) };
  }

  function energy(net, drives, state, side) {
    const field = fed(net, state, side);
    const entropy = (v) => (v > 0 ? v * Math.log(v) : 0);
    let sum = 0;
    for (let i = 0; i < state.length; i++) {
      const s = state[i];
      sum += 0.5 * s + 0.25 * (entropy(s) + entropy(1 - s)) - s * (drives[i] + 0.5 * field[i]);
    }
    return sum;
  }

  /* The probability of the last class in every cell. */
  function readout(net, state, side) {
    const cells = side * side;
    const found = new Float64Array(cells);
    for (let p = 0; p < cells; p++) {
      let gap = net.offset[1] - net.offset[0];
      for (let c = 0; c < net.channels; c++) {
        gap += (net.readout[net.channels + c] - net.readout[c]) * state[c * cells + p];
      }
      found[p] = 1 / (1 + Math.exp(-gap));
    }
    return found;
  }

  /* Cells on the shortest way between two cells, empty where there is none. */
  function way(walls, side, from, to) {
    const before = new Int32Array(side * side).fill(-1);
    before[from] = from;
    const front = [from];
    for (let k = 0; k < front.length; k++) {
      const at = front[k];
      if (at === to) break;
      const column = at % side;
      for (const next of [at - side, at + side, column ? at - 1 : -1, column < side - 1 ? at + 1 : -1]) {
        if (next < 0 || next >= walls.length || walls[next] || before[next] >= 0) continue;
        before[next] = at;
        front.push(next);
      }
    }
    if (before[to] < 0) return [];
    const found = [to];
    while (found[found.length - 1] !== from) found.push(before[found[found.length - 1]]);
    return found;
  }

  /* A maze of that side with one way between any two rooms, and two of its rooms. */
  function random(side, draw = Math.random) {
    const walls = new Uint8Array(side * side).fill(1);
    const rooms = (side - 1) / 2;
    const room = () => [2 * Math.floor(draw() * rooms) + 1, 2 * Math.floor(draw() * rooms) + 1];
    const trail = [room()];
    walls[trail[0][0] * side + trail[0][1]] = 0;
    while (trail.length) {
      const number = draw() < 0.5 ? Math.floor(draw() * trail.length) : trail.length - 1;
      const [r, c] = trail[number];
      const ways = [[0, 1], [1, 0], [0, -1], [-1, 0]].filter(([dr, dc]) => {
        const [y, x] = [r + 2 * dr, c + 2 * dc];
        return y > 0 && x > 0 && y < side && x < side && walls[y * side + x];
      });
      if (!ways.length) {
        trail.splice(number, 1);
        continue;
      }
      const [dr, dc] = ways[Math.floor(draw() * ways.length)];
      walls[(r + dr) * side + c + dc] = walls[(r + 2 * dr) * side + c + 2 * dc] = 0;
      trail.push([r + 2 * dr, c + 2 * dc]);
    }
    const marks = [];
    while (marks.length < 2) {
      const [r, c] = room();
      if (!marks.includes(r * side + c)) marks.push(r * side + c);
    }
    return { side, walls, marks };
  }

  return { network, drive, start, step, energy, readout, way, random };
})();
if (typeof module !== "undefined") module.exports = Maps;

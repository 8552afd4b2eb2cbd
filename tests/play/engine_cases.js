// What the engine finds for one network and one picture: run in Node and in a browser alike.
(Engine, data, x, target, beta) => {
  const net = Engine.network(data);
  const drives = Engine.drive(net, Float64Array.from(x));
  const tight = { tol: 1e-12, maxSteps: 4000 };
  const free = Engine.settle(net, drives, tight);
  const { value, cotangent } = Engine.loss(net, free.state, target);
  const { direction, scale } = Engine.normalise(net, cotangent);
  const up = Engine.nudged(net, drives, direction, beta, tight).state;
  const down = Engine.nudged(net, drives, direction, -beta, tight).state;
  const plain = (gradient) =>
    Object.fromEntries(Object.entries(gradient).map(([name, values]) => [name, Array.from(values)]));
  const found = Engine.contrast(net, x, up, down, beta, scale);
  const exact = Engine.exact(net, x, free.state, cotangent);
  const path = [];
  let state = new Float64Array(net.n);
  for (let k = 0; k < 12; k++) {
    const next = Engine.step(net, drives, state, { damping: 0.25 });
    state = next.state;
    path.push({ state: Array.from(state), energy: Engine.energy(net, drives, state) });
  }
  return {
    settled: free.settled,
    free: Array.from(free.state),
    up: Array.from(up),
    down: Array.from(down),
    outputs: Array.from(Engine.readout(net, free.state)),
    energy: Engine.energy(net, drives, free.state),
    loss: value,
    direction: Array.from(direction),
    gradient: plain(found),
    exact: plain(exact),
    angle: Engine.angle(found, exact),
    norm: Engine.spectralNorm(net),
    path,
  };
};

// Draws the plots. The data stand in #data; nothing of them is ever parsed as
// HTML: texts are set as textContent, and colours are names of CSS variables.
(function () {
  "use strict";
  var data = JSON.parse(document.getElementById("data").textContent);
  var root = document.getElementById("charts");
  var sync = uPlot.sync("time");
  var drawn = [];

  function css(name) {
    return getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim() || "#888";
  }
  function add(parent, tag, className, text) {
    var e = document.createElement(tag);
    if (className) e.className = className;
    if (text !== undefined) e.textContent = text;
    parent.appendChild(e);
    return e;
  }
  function alpha(color, a) {
    var m = /^#(..)(..)(..)$/.exec(color);
    if (!m) return color;
    return "rgba(" + parseInt(m[1], 16) + "," + parseInt(m[2], 16) + "," + parseInt(m[3], 16) + "," + a + ")";
  }
  function format(v, chart) {
    if (v === null || v === undefined) return "";
    if (chart.percent) return v.toFixed(v < 9.95 ? 1 : 0) + "%";
    return v.toFixed(v < 9.95 ? 2 : v < 99.5 ? 1 : 0) + " " + chart.unit;
  }

  // Stacked lines: each is drawn up to the sum of itself and those before it, the
  // last first, so that the earlier ones cover what is theirs.
  function stack(lines) {
    var sums = [], n = lines.length ? lines[0].values.length : 0;
    for (var i = 0; i < lines.length; i++) {
      var v = new Array(n);
      for (var k = 0; k < n; k++) {
        var x = lines[i].values[k];
        var below = i ? sums[i - 1][k] : 0;
        v[k] = x === null && below === null ? null : (x || 0) + (below || 0);
      }
      sums.push(v);
    }
    return sums;
  }

  // Events lie behind the lines: faint over the whole height, clear at the top.
  function bands(panel) {
    return {
      hooks: {
        drawClear: function (u) {
          var ctx = u.ctx, box = u.bbox;
          ctx.save();
          ctx.beginPath();
          ctx.rect(box.left, box.top, box.width, box.height);
          ctx.clip();
          panel.events.forEach(function (e) {
            var color = css(["careful", "warning", "critical"].indexOf(e.level) >= 0 ? e.level : "careful");
            var from = u.valToPos(e.start, "x", true), to = u.valToPos(e.end, "x", true);
            var wide = Math.max(to - from, 2);
            ctx.fillStyle = alpha(color, 0.06);
            ctx.fillRect(from, box.top, wide, box.height);
            ctx.fillStyle = color;
            ctx.fillRect(from, box.top, wide, 4 * devicePixelRatio);
          });
          ctx.restore();
        },
      },
    };
  }

  function drawPanel(parent, chart, panel) {
    var box = add(parent, "div", "panel");
    if (panel.name) add(box, "h3", "", panel.name);
    if (!panel.lines.length) {
      add(box, "div", "dim small", "nothing of this was seen");
      return;
    }
    var legend = add(box, "div", "legend");
    var sums = chart.stacked ? stack(panel.lines) : null;
    var entries = panel.lines.map(function (line) {
      var e = add(legend, "span");
      add(e, "i").style.background = css(line.color);
      add(e, "span", "", line.label);
      return add(e, "b");
    });
    var order = panel.lines.map(function (_, i) { return i; });
    if (chart.stacked) order.reverse();
    var series = [{}].concat(order.map(function (i) {
      var line = panel.lines[i], color = css(line.color);
      return {
        stroke: color,
        width: chart.stacked ? 0 : 1.75,
        fill: chart.stacked ? color : line.fill ? alpha(color, 0.16) : undefined,
        spanGaps: false,
        points: { show: panel.t.length === 1 },
      };
    }));
    var values = [panel.t].concat(order.map(function (i) { return sums ? sums[i] : panel.lines[i].values; }));
    var axis = { stroke: css("dim"), grid: { stroke: css("grid"), width: 1 }, ticks: { stroke: css("grid"), width: 1 }, font: "12px system-ui, sans-serif" };
    function legendAt(u) {
      var at = u.cursor.idx;
      entries.forEach(function (e, i) {
        var v = at === null || at === undefined ? undefined : panel.lines[i].values[at];
        e.textContent = v === undefined || v === null ? "" : "  " + format(v, chart);
      });
    }
    var plot = new uPlot({
      width: Math.max(box.clientWidth, 200),
      height: 180,
      padding: [8, 8, 0, 0],
      legend: { show: false },
      cursor: { sync: { key: sync.key, scales: ["x", null] }, y: false, points: { show: !chart.stacked }, drag: { x: true, y: false } },
      scales: { x: { time: false, range: function (u, min, max) { return min === max ? [min - 1, max + 1] : [min, max]; } }, y: { range: [0, chart.max || 1] } },
      axes: [
        Object.assign({}, axis, { values: function (u, ticks) { return ticks.map(function (v) { return v + " s"; }); }, space: 60, size: 30 }),
        Object.assign({}, axis, { size: 52, values: function (u, ticks) { return ticks.map(function (v) { return chart.percent ? v + "%" : String(v); }); } }),
      ],
      series: series,
      plugins: [bands(panel)],
      hooks: { setCursor: [legendAt] },
    }, values, box);
    sync.sub(plot);
    drawn.push({ plot: plot, box: box });
  }

  function drawAll() {
    drawn.forEach(function (d) { sync.unsub(d.plot); d.plot.destroy(); });
    drawn = [];
    root.textContent = "";
    data.charts.forEach(function (chart) {
      var card = add(root, "section", "card");
      add(card, "h2", "", chart.title + (chart.unit ? ", " + chart.unit : ""));
      add(card, "div", "dim small chart-about", chart.about);
      var panels = add(card, "div", chart.panels.length > 1 ? "panels two" : "panels");
      chart.panels.forEach(function (panel) { drawPanel(panels, chart, panel); });
    });
  }
  drawAll();
  var pending = 0;
  window.addEventListener("resize", function () {
    cancelAnimationFrame(pending);
    pending = requestAnimationFrame(function () {
      drawn.forEach(function (d) { d.plot.setSize({ width: Math.max(d.box.clientWidth, 200), height: 180 }); });
    });
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
})();

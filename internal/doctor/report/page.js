// The cursor that all plots share, and zooming. The plots stand in the page as
// SVG already, one unit across to a second: another viewBox shows another part.
// The data stand in #data; nothing of them is ever parsed as HTML.
(function () {
  "use strict";
  var charts = JSON.parse(document.getElementById("data").textContent).charts;

  var plots = Array.prototype.map.call(document.querySelectorAll(".plot"), function (box) {
    var chart = charts[+box.dataset.chart], panel = chart.panels[+box.dataset.panel];
    var svg = box.querySelector("svg"), all = svg.viewBox.baseVal;
    return {
      chart: chart, panel: panel, svg: svg,
      area: box.querySelector(".area"), across: box.querySelector(".across"), grid: box.querySelector(".grid.down"),
      cursor: box.querySelector(".cursor"), select: box.querySelector(".select"),
      values: box.previousElementSibling.querySelectorAll("b"),
      all: [all.x, all.x + all.width], from: all.x, to: all.x + all.width,
    };
  });

  function format(v, chart) {
    if (v === null || v === undefined) return "";
    if (chart.percent) return v.toFixed(v < 9.95 ? 1 : 0) + "%";
    return v.toFixed(v < 9.95 ? 2 : v < 99.5 ? 1 : 0) + " " + chart.unit;
  }

  // The place of the time nearest to t.
  function nearest(times, t) {
    var low = 0, high = times.length - 1;
    while (high - low > 1) {
      var middle = (low + high) >> 1;
      if (times[middle] <= t) low = middle; else high = middle;
    }
    return t - times[low] <= times[high] - t ? low : high;
  }

  // Shows the values at time t in every plot; without a time, none.
  function point(t) {
    plots.forEach(function (p) {
      var out = t === undefined || t < p.from || t > p.to;
      var i = nearest(p.panel.t, t);
      p.cursor.hidden = out;
      if (!out) p.cursor.style.left = 100 * (t - p.from) / (p.to - p.from) + "%";
      p.values.forEach(function (b, k) { b.textContent = out ? "" : format(p.panel.lines[k].values[i], p.chart); });
    });
  }

  // Shows a part of the time in a plot, with round numbers below.
  function show(p, from, to) {
    p.from = from;
    p.to = to;
    p.svg.setAttribute("viewBox", from + " 0 " + (to - from) + " 100");
    var step = Math.pow(10, Math.floor(Math.log10((to - from) / 7)));
    step *= [1, 2, 2.5, 5, 10].find(function (f) { return (to - from) / (step * f) <= 7; });
    var lines = "";
    p.across.textContent = "";
    for (var i = Math.ceil(from / step); i * step <= to; i++) {
      var name = document.createElement("span");
      name.textContent = +(i * step).toFixed(6) + " s";
      name.style.left = 100 * (i * step - from) / (to - from) + "%";
      p.across.appendChild(name);
      lines += "M" + i * step + " 0V100";
    }
    p.grid.setAttribute("d", lines);
  }

  plots.forEach(function (p) {
    var begun; // where a selection has begun, in seconds
    function at(event) {
      var box = p.area.getBoundingClientRect();
      return p.from + Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1) * (p.to - p.from);
    }
    p.area.addEventListener("pointermove", function (event) {
      var t = at(event);
      point(t);
      if (begun === undefined) return;
      p.select.hidden = false;
      p.select.style.left = 100 * (Math.min(begun, t) - p.from) / (p.to - p.from) + "%";
      p.select.style.width = 100 * Math.abs(t - begun) / (p.to - p.from) + "%";
    });
    p.area.addEventListener("pointerleave", function () { if (begun === undefined) point(); });
    p.area.addEventListener("pointerdown", function (event) {
      if (event.pointerType !== "mouse" || event.button !== 0) return;
      begun = at(event);
      p.area.setPointerCapture(event.pointerId);
    });
    p.area.addEventListener("pointerup", function (event) {
      if (begun === undefined) return;
      var from = Math.min(begun, at(event)), to = Math.max(begun, at(event));
      begun = undefined;
      p.select.hidden = true;
      if (to - from > (p.to - p.from) / 100) plots.forEach(function (q) { show(q, from, to); });
    });
    p.area.addEventListener("pointercancel", function () {
      begun = undefined;
      p.select.hidden = true;
    });
    p.area.addEventListener("dblclick", function () { plots.forEach(function (q) { show(q, q.all[0], q.all[1]); }); });
  });
})();

package status

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/internal/doctor/gpu"
)

// exporter answers Prometheus on an address. One engine of a node exports the metrics of all engines. If it exits,
// another one with the same address takes over.
type exporter struct {
	address string
	stop    chan struct{}
	done    sync.WaitGroup

	mu       sync.Mutex
	server   *http.Server
	at       string // the address in use, "" while another engine exports
	devices  *gpu.Devices
	finished bool
}

// takeOver is the interval for checking whether the address is free. Tests shorten it.
var takeOver = 5 * time.Second

// foundIn is the time in which another engine that has just taken the address shows it.
const foundIn = time.Second

// Export exports the metrics of all engines of this user on this node on an address, such as ":9400". It returns the
// address in use, "" if another engine exports there. A second call for the same address does nothing.
func (e *Engine) Export(address string) (at string, err error) {
	if _, _, err := net.SplitHostPort(address); err != nil {
		return "", fmt.Errorf("metrics=%q is not an address: expected host:port, such as \":9400\"", address)
	}
	e.exporting.Lock()
	defer e.exporting.Unlock()
	if x := e.exported(); x != nil {
		if x.address != address {
			return "", fmt.Errorf("metrics=%q: this engine exports metrics on %s already", address, x.address)
		}
		return x.serving(), nil
	}
	x := &exporter{address: address, stop: make(chan struct{})}
	err = x.listen()
	switch {
	case errors.Is(err, unix.EADDRINUSE) && e.elsewhere(address):
		x.done.Go(x.wait)
	case err != nil:
		var no unix.Errno
		if errors.As(err, &no) {
			err = no
		}
		return "", fmt.Errorf("metrics=%q: %w", address, err)
	}
	e.mu.Lock()
	e.export = x
	e.mu.Unlock()
	return x.serving(), nil
}

// elsewhere reports whether another engine of this user exports on an address.
func (e *Engine) elsewhere(address string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), foundIn)
	defer cancel()
	tick := time.NewTicker(foundIn / 10)
	defer tick.Stop()
	for {
		all, _, _ := listAnswers(ctx)
		if slices.ContainsFunc(all, func(a answer) bool { return a.Metrics == address }) {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
}

func (x *exporter) serving() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.at
}

func (x *exporter) listen() error {
	l, err := net.Listen("tcp", x.address)
	if err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.finished {
		return l.Close()
	}
	x.devices, _ = gpu.Open()
	registry := prometheus.NewRegistry()
	registry.MustRegister(&collector{x.devices})
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 2 * answerTime}))
	x.server = &http.Server{Handler: mux, ReadHeaderTimeout: answerTime, IdleTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0)}
	x.at = x.address
	if _, port, _ := net.SplitHostPort(x.address); port == "0" {
		x.at = l.Addr().String()
	}
	x.done.Go(func() { _ = x.server.Serve(l) }) // until close
	return nil
}

// wait takes over when the address is free.
func (x *exporter) wait() {
	tick := time.NewTicker(takeOver)
	defer tick.Stop()
	for {
		select {
		case <-x.stop:
			return
		case <-tick.C:
			if x.listen() == nil {
				return
			}
		}
	}
}

func (x *exporter) close() {
	x.mu.Lock()
	x.finished = true
	if x.server != nil {
		_ = x.server.Close()
	}
	devices := x.devices
	x.mu.Unlock()
	close(x.stop)
	x.done.Wait()
	if devices != nil {
		devices.Close()
	}
}

// collector reads all engines for each scrape.
type collector struct{ devices *gpu.Devices }

// loaderLabels are the labels of a loader, engineLabels those of values of a whole engine.
var (
	loaderLabels = []string{"run", "rank", "engine", "loader"}
	engineLabels = []string{"engine"}
)

func describe(m *Metric) *prometheus.Desc {
	labels := loaderLabels
	if m.Process {
		labels = engineLabels
	}
	if m.Label != "" {
		labels = append(slices.Clone(labels), m.Label)
	}
	return prometheus.NewDesc(m.FullName(), m.Help, labels, nil)
}

// Describe is empty: series come and go with the engines.
func (c *collector) Describe(chan<- *prometheus.Desc) {}

// Collect reads the state of all engines.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	all, _, _ := List(ctx) // an engine that does not answer is missing, as one that has ended
	for i := range Metrics {
		m := &Metrics[i]
		desc := describe(m)
		seen := map[int]bool{}
		for k := range all {
			s := &all[k]
			labels := []string{s.Run, strconv.Itoa(s.Rank), strconv.Itoa(s.Engine), strconv.Itoa(s.Loader)}
			if m.Process {
				if seen[s.Engine] {
					continue
				}
				seen[s.Engine] = true
				labels = []string{strconv.Itoa(s.Engine)}
			}
			collect(out, desc, m, s, labels)
		}
	}
	if c.devices != nil {
		for _, a := range AcceleratorMetrics {
			desc := prometheus.NewDesc("stoker_"+a.Name, a.Help, []string{"accelerator"}, nil)
			for _, r := range c.devices.Read() {
				out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, a.Value(&r), strconv.Itoa(r.Index))
			}
		}
	}
}

func collect(out chan<- prometheus.Metric, desc *prometheus.Desc, m *Metric, s *Status, labels []string) {
	kind := prometheus.GaugeValue
	if m.Kind == Counter {
		kind = prometheus.CounterValue
	}
	put := func(v float64, more ...string) {
		if !math.IsNaN(v) {
			out <- prometheus.MustNewConstMetric(desc, kind, v, append(slices.Clone(labels), more...)...)
		}
	}
	switch {
	case m.Kind == Summary:
		if s.Watched {
			q := map[float64]float64{}
			for i, of := range Quantiles {
				q[of] = s.WaitQuantiles[i]
			}
			out <- prometheus.MustNewConstSummary(desc, uint64(s.Totals.Waits), s.Totals.Waited, q, labels...)
		}
	case m.state != nil:
		put(1, m.state(s))
	case m.totals != nil:
		for label, v := range m.totals(&s.Totals) {
			put(v, label)
		}
	case m.total != nil:
		put(m.total(&s.Totals))
	default:
		put(m.now(s))
	}
}

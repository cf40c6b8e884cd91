package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/internal/counters"
	"github.com/stokerdata/stoker/internal/fair"
	"github.com/stokerdata/stoker/internal/handoff"
	"github.com/stokerdata/stoker/internal/inflight"
	"github.com/stokerdata/stoker/internal/pipeline"
	"github.com/stokerdata/stoker/internal/shared"
	"github.com/stokerdata/stoker/internal/source/wrap/pooled"
	"github.com/stokerdata/stoker/internal/status"
)

func newServeCommand(app *App) *cobra.Command {
	var socket, metrics, shared string
	var detached bool
	var fd, parent, inFlight int
	var flight flightFlags
	cmd := &cobra.Command{
		Use:     "serve --socket PATH | --flight ADDRESS",
		Short:   "Run the engine for training processes on this machine, or build batches for others",
		GroupID: groupEngine,
		Long: `Run the engine for training processes on this machine, or build batches for others.

stoker.Loader starts its own engine, so training needs no server. This command runs an
engine that several training processes share:

  stoker serve --socket /run/user/1000/stoker
  STOKER_SOCKET=/run/user/1000/stoker python train.py

Only processes of the same user can connect. Each loader gets its own ring of batches. The
engine logs to standard error. It exits on Ctrl-C or SIGTERM and removes its socket. A
socket that a killed engine left is replaced.

With --flight it builds batches for trainers on other machines, which name it in
stoker.Loader(feeders=...). loader.save_pipeline(FILE) in Python writes the file for
--config. The engine serves this data and this pipeline and nothing else:

  stoker serve --flight :7443 --config pipeline.json --tls-cert c.pem --tls-key k.pem

--data sets where this server reads the data. With --tls-ca, clients need a certificate of
that authority. With --flight-secret, they need a token (stoker token). Without TLS, only
clients on this machine are served, unless --insecure is set.`,
		Example: `  stoker serve --socket /run/user/1000/stoker
  stoker serve --flight 127.0.0.1:7443 --data /data/train --config pipeline.json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case flight.address != "" && (socket != "" || cmd.Flags().Changed("fd")):
				return usageError("stoker serve --help", "--flight and --socket exclude each other")
			case flight.address != "":
				stop, err := app.endWith(parent)
				if err != nil {
					return err
				}
				defer stop()
				return serveFlight(app, &flight, metrics)
			case flight != flightFlags{}:
				return usageError("stoker serve --flight :7443 --config FILE", "--flight is missing")
			case cmd.Flags().Changed("fd") && socket != "":
				return usageError("stoker serve --help", "--socket and --fd exclude each other")
			case shared != "" && detached:
				return serveShared(app.Context, shared)
			case shared != "":
				return startShared(shared)
			case cmd.Flags().Changed("fd"):
				return serveEmbedded(app.Context, fd, parent, inFlight)
			case socket == "":
				return usageError("stoker serve --socket PATH", "--socket is missing")
			}
			return serveSocket(app, socket, metrics)
		},
	}
	cmd.Flags().StringVar(&socket, "socket", "", "path of the Unix socket to serve on")
	cmd.Flags().StringVar(&metrics, "metrics", "", "export metrics for Prometheus on this `address`, such as :9400")
	cmd.Flags().IntVar(&fd, "fd", -1, "serve one client on this inherited socket (what stoker.Loader does)")
	cmd.Flags().IntVar(&parent, "parent", 0, "end when this process, the parent, has ended")
	cmd.Flags().IntVar(&inFlight, "in-flight", -1, "note the records in flight in this inherited file")
	cmd.Flags().StringVar(&shared, "shared", "", "start an engine for the loaders of this user (what Limits(shared=True) does)")
	cmd.Flags().BoolVar(&detached, "detached", false, "be that engine")
	_ = cmd.Flags().MarkHidden("shared")
	_ = cmd.Flags().MarkHidden("detached")
	flight.add(cmd.Flags())
	_ = cmd.Flags().MarkHidden("in-flight")
	_ = cmd.Flags().MarkHidden("fd")
	_ = cmd.Flags().MarkHidden("parent")
	return cmd
}

// openPipeline opens the pipeline that a client requests. trainer is the client's process if it is known, else 0.
// Records in flight are noted in table. The pipeline is shown among those of engine. node and sources, if not nil, are
// shared with other pipelines.
func openPipeline(ctx context.Context, config []byte, trainer int, table *inflight.Table, engine *status.Engine, node *fair.Node, sources *pooled.Pool) (shared.Source, error) {
	cfg, err := pipeline.ParseConfig(config)
	if err != nil {
		return nil, err
	}
	if spec := os.Getenv(faultsVariable); spec != "" {
		if cfg.Decorate, err = parseFaults(spec); err != nil {
			return nil, err
		}
	}
	if value := os.Getenv(crashVariable); value != "" {
		if cfg.Decoding, err = crashAt(value); err != nil {
			return nil, err
		}
	}
	cfg.Trainer, cfg.InFlight, cfg.Node, cfg.Sources = trainer, table, node, sources
	cfg.OpenRemote = openFeeders
	cfg.Say = func(what string) { fmt.Fprintln(os.Stderr, "stoker: "+what) }
	pipeline.OwnProcess()
	p, err := pipeline.Open(ctx, cfg)
	if err != nil {
		return nil, err // not p: a nil *Pipeline in an interface is not nil
	}
	return observe(ctx, p, engine), nil
}

// observed is a pipeline whose counters other processes may read.
type observed struct {
	*pipeline.Pipeline
	counters *counters.Publisher // nil if the system has no memory for them
	shown    *status.Loader
	info     pipeline.Info
}

// observe publishes the counters of p, and exports metrics if the client requests that. An engine works without both.
func observe(ctx context.Context, p *pipeline.Pipeline, engine *status.Engine) shared.Source {
	trainer := handoff.PeerPID(ctx)
	o := &observed{Pipeline: p, info: p.Info()}
	o.counters, _ = counters.Publish(trainer, func() counters.Counters { return countersOf(p) })
	o.shown = engine.Add(p, trainer)
	if address := p.Config().Metrics; address != "" {
		var err error
		if o.info.Metrics, err = engine.Export(address); err != nil {
			o.info.MetricsNote = err.Error() + ": training goes on without metrics"
		}
	}
	return o
}

// Info is that of the pipeline, with the address of the metrics.
func (o *observed) Info() pipeline.Info { return o.info }

// Stats are those of the pipeline, with the stage that limits.
func (o *observed) Stats() pipeline.Stats {
	s := o.Pipeline.Stats()
	s.Limit = o.shown.Limits()
	return s
}

func (o *observed) Close() error {
	o.shown.Close()
	var err error
	if o.counters != nil {
		err = o.counters.Close()
	}
	return errors.Join(err, o.Pipeline.Close())
}

// countersOf translates the statistics of a pipeline.
func countersOf(p *pipeline.Pipeline) counters.Counters {
	s, info := p.Counters(), p.Info()
	c := counters.Counters{
		Batches: uint64(s.Batches), Records: uint64(s.Records), Bytes: uint64(s.Bytes),
		HandoffWait: uint64(s.ConsumerWait), RingFull: uint64(s.RingFull), RingEmpty: uint64(s.RingEmpty),
		Skipped: uint64(s.Skipped), Retries: uint64(s.Retries), GC: uint64(s.NumGC),
		Slots: uint64(info.Slots), SlotsFree: uint64(s.SlotsFree), SlotsReady: uint64(s.SlotsReady), SlotsHeld: uint64(s.SlotsHeld),
		Memory: uint64(s.MemoryUsed), BatchSize: uint64(info.BatchSize),
	}
	for _, stage := range s.Stages {
		busy := uint64(stage.Busy)
		switch stage.Name {
		case "sample":
			c.Sample = busy
		case "fetch":
			c.Read, c.ReadWorkers = busy, uint64(stage.Workers)
		case "decode":
			c.Decode, c.DecodeWorkers, c.Decoded = busy, uint64(stage.Workers), uint64(stage.Records)
		case "transform":
			c.Transform = busy
		case "collate":
			c.Collate = busy
		}
	}
	return c
}

// openStatus makes the counters of this engine visible, and exports metrics on an address unless it is "".
func openStatus(log *slog.Logger, metrics string) (*status.Engine, error) {
	engine := status.Open(version())
	if metrics != "" {
		at, err := engine.Export(metrics)
		if err != nil {
			engine.Close()
			return nil, &Error{Msg: "cannot export metrics", Err: err, Hint: "choose a free port, such as --metrics :9401"}
		}
		log.Info("exporting metrics", "address", at)
	}
	return engine, nil
}

func serveSocket(app *App, path, metrics string) error {
	log := slog.New(slog.NewTextHandler(app.Stderr, nil))
	engine, err := openStatus(log, metrics)
	if err != nil {
		return err
	}
	defer engine.Close()
	open := func(ctx context.Context, config []byte) (handoff.Pipeline, error) {
		return openPipeline(ctx, config, 0, nil, engine, nil, nil)
	}
	server, err := handoff.Listen(path, handoff.Options{Open: open, EngineVersion: version(), Log: log})
	if err != nil {
		return &Error{Msg: "cannot serve", Err: err}
	}
	log.Info("serving", "socket", path, "pid", os.Getpid())
	err = server.Serve(app.Context)
	log.Info("stopped", "socket", path)
	return err
}

// serveEmbedded serves the process that started this one. It returns as soon as that process has closed the connection
// or exited, even during a read of a stuck disk. The caller then ends the process, and the kernel releases everything.
func serveEmbedded(ctx context.Context, fd, parent, inFlight int) error {
	// Ctrl-C in a terminal and the SIGTERM of a batch system go to trainer and
	// engine alike. When to end is the trainer's decision, which may want its
	// next batches for a last checkpoint: it closes the connection.
	signal.Ignore(os.Interrupt, unix.SIGTERM, unix.SIGHUP)
	if fd < 3 {
		return usageError("", "--fd %d is not an inherited socket", fd)
	}
	conn, err := handoff.FromFD(fd)
	if err != nil {
		return &Error{Msg: "cannot serve", Err: err}
	}
	orphaned := make(chan struct{})
	if parent > 0 {
		if err := watchParent(parent, orphaned); err != nil {
			return err
		}
	}
	var table *inflight.Table
	if inFlight >= 0 {
		table = inflight.Open(inFlight)
	}
	engine := status.Open(version())
	defer engine.Close()
	open := func(ctx context.Context, config []byte) (handoff.Pipeline, error) {
		return openPipeline(ctx, config, parent, table, engine, nil, nil)
	}
	session := handoff.NewSession(conn, handoff.Options{
		Open: open, EngineVersion: version(), Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	ended := make(chan error, 1)
	go func() { ended <- session.Run(ctx) }()
	select {
	case <-orphaned:
		return nil
	case err := <-ended:
		return err
	case <-session.Gone():
	}
	// The client is gone, or has broken the protocol and Run is about to return that error.
	select {
	case err := <-ended:
		return err
	default:
		return nil
	}
}

// endWith cancels app.Context when process parent has ended. 0 means no process. The caller calls stop at its end.
func (app *App) endWith(parent int) (stop func(), err error) {
	if parent <= 0 {
		return func() {}, nil
	}
	orphaned := make(chan struct{})
	if err := watchParent(parent, orphaned); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(app.Context)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-orphaned:
			cancel()
		case <-ctx.Done():
		}
	}()
	app.Context = ctx
	return func() { cancel(); <-ended }, nil
}

// watchParent closes orphaned when process pid, which must be the parent, has
// ended. The connection's end says the same sooner, unless a child that the
// trainer forked holds a copy of the socket.
func watchParent(pid int, orphaned chan<- struct{}) error {
	pidfd, err := unix.PidfdOpen(pid, 0)
	switch {
	case err == unix.ESRCH || unix.Getppid() != pid:
		if err == nil {
			unix.Close(pidfd)
		}
		close(orphaned)
		return nil
	case err == unix.ENOSYS || err == unix.EPERM:
		return nil // before Linux 5.3, or forbidden by a sandbox: the connection has to do
	case err != nil:
		return fmt.Errorf("watching the parent process %d: %w", pid, err)
	}
	go func() {
		// The goroutine ends with the process, because it must watch until then.
		fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
		for {
			if n, err := unix.Poll(fds, -1); n > 0 || err != nil && err != unix.EINTR {
				close(orphaned)
				return
			}
		}
	}()
	return nil
}

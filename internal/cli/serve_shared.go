package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/internal/fair"
	"github.com/stokerdata/stoker/internal/handoff"
	"github.com/stokerdata/stoker/internal/inflight"
	"github.com/stokerdata/stoker/internal/pipeline"
	"github.com/stokerdata/stoker/internal/shared"
	"github.com/stokerdata/stoker/internal/source/wrap/pooled"
	"github.com/stokerdata/stoker/internal/status"
)

const (
	// sharedLinger is the time without a client after which a shared engine exits. The next loader of a program, and the
	// next job of a script, then find it running.
	sharedLinger = 10 * time.Second
	// lingerVariable replaces sharedLinger in tests.
	lingerVariable = "STOKER_TEST_LINGER"
	// sharedStart is the time that a shared engine has to listen.
	sharedStart = 30 * time.Second
	// logSuffix is added to the path of the socket for the engine's log.
	logSuffix = ".log"
	// readyFD is the descriptor on which the engine reports that it listens.
	readyFD = 3
)

// startShared starts an engine that serves the loaders of this user at path, as a process without a parent. It returns
// when the engine listens. The caller holds the lock of the socket.
func startShared(path string) error {
	program, err := os.Executable()
	if err != nil {
		return &Error{Msg: "cannot start the shared engine", Err: err}
	}
	_ = os.Remove(path + logSuffix) // clients of an earlier engine have it open
	log, err := os.OpenFile(path+logSuffix, os.O_RDWR|os.O_CREATE|os.O_EXCL|os.O_APPEND|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return &Error{Msg: "cannot start the shared engine", Err: err}
	}
	defer log.Close()
	ready, theirs, err := os.Pipe()
	if err != nil {
		return &Error{Msg: "cannot start the shared engine", Err: err}
	}
	defer ready.Close()
	cmd := exec.Command(program, "serve", "--shared", path, "--detached")
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = log, log, []*os.File{theirs}
	cmd.Dir = "/" // a relative path of a trainer is none of the engine's
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	theirs.Close()
	if err != nil {
		return &Error{Msg: "cannot start the shared engine", Err: err}
	}
	_ = ready.SetReadDeadline(time.Now().Add(sharedStart))
	var b [1]byte
	if _, err := io.ReadFull(ready, b[:]); err == nil {
		noteVersion(path + handoff.LockSuffix)
		return cmd.Process.Release()
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	text, _ := os.ReadFile(path + logSuffix)
	last := strings.TrimSpace(string(text[max(0, len(text)-2000):]))
	return &Error{Msg: fmt.Sprintf("the shared engine did not start: %s", last)}
}

// noteVersion writes the version into the lock file, for programs of other versions. It is only for a warning, so errors
// do not matter.
func noteVersion(lock string) {
	f, err := os.OpenFile(lock, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return
	}
	defer f.Close()
	_, _ = fmt.Fprintln(f, version())
}

// serveShared serves the loaders of this user until there were none for a while.
func serveShared(ctx context.Context, path string) error {
	// As an engine of one loader: batch systems send these signals to all processes of a job.
	signal.Ignore(os.Interrupt, unix.SIGTERM, unix.SIGHUP)
	linger := sharedLinger
	if d, err := time.ParseDuration(os.Getenv(lingerVariable)); err == nil && d > 0 {
		linger = d
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	engine := status.Open(version())
	defer engine.Close()
	node := fair.NewNode(runtime.GOMAXPROCS(0))
	var hubs shared.Hubs
	sources := pooled.New()
	open := func(ctx context.Context, config []byte) (handoff.Pipeline, error) {
		return openShared(ctx, config, engine, node, sources, &hubs)
	}
	server, err := handoff.Listen(path, handoff.Options{Open: open, EngineVersion: version(), Log: log, Linger: linger})
	if err != nil {
		return &Error{Msg: "cannot serve", Err: err}
	}
	ready := os.NewFile(readyFD, "ready")
	_, err = ready.Write([]byte{1})
	ready.Close()
	if err != nil {
		return &Error{Msg: "cannot serve", Err: err}
	}
	return server.Serve(ctx)
}

// openShared opens the pipeline that a client requests, which others may share.
func openShared(ctx context.Context, config []byte, engine *status.Engine, node *fair.Node, sources *pooled.Pool, hubs *shared.Hubs) (handoff.Pipeline, error) {
	cfg, err := pipeline.ParseConfig(config)
	if err != nil {
		return nil, err
	}
	open := func(ctx context.Context, table *inflight.Table) (shared.Source, error) {
		return openPipeline(ctx, config, handoff.PeerPID(ctx), table, engine, node, sources)
	}
	if cfg.Share && cfg.Order != pipeline.OrderClient {
		key, err := shareKey(config)
		if err != nil {
			return nil, err
		}
		return hubs.Open(ctx, key, cfg.Weight, cfg.Pinned, open)
	}
	table, err := inflight.New()
	if err != nil {
		return nil, err
	}
	p, err := open(ctx, table)
	if err != nil {
		_ = table.Close()
		return nil, err
	}
	return shared.Single(p, table), nil
}

// ownKeys are the keys of a configuration that may differ between loaders with the same stream.
var ownKeys = []string{"weight", "cpu_limit", "cores", "suspects", "share", "pinned", "metrics"}

// shareKey returns a text that is equal for configurations with the same stream.
func shareKey(config []byte) (string, error) {
	var values map[string]any
	dec := json.NewDecoder(bytes.NewReader(config))
	dec.UseNumber() // a seed has 64 bits
	if err := dec.Decode(&values); err != nil {
		return "", err
	}
	for _, name := range ownKeys {
		delete(values, name)
	}
	key, err := json.Marshal(values)
	return string(key), err
}

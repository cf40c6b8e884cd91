package status

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/internal/doctor/steplog"
	"github.com/stokerdata/stoker/internal/proc"
	"github.com/stokerdata/stoker/internal/runfolder"
	"github.com/stokerdata/stoker/source"
)

const (
	prefix, suffix = "engine-", ".status"
	// answerTime limits the time for an answer, staleAge is the age from which a socket without an engine is removed:
	// a new one does not listen yet.
	answerTime = 2 * time.Second
	staleAge   = time.Minute
	// maxAnswer limits the size of an answer, and maxEngines the number of engines that are asked.
	maxAnswer  = 4 << 20
	maxEngines = 1024
)

// Engine shows the loaders of this process to other processes of the user. It works without a runtime folder as well:
// then no other process finds it.
type Engine struct {
	version string

	mu      sync.Mutex
	loaders []*Loader
	next    int
	export  *exporter // once it listens or waits for its address
	conn    net.Conn  // that is being answered

	exporting sync.Mutex // of Export

	path     string
	listener net.Listener
	stop     chan struct{}
	done     sync.WaitGroup
	once     sync.Once
}

// answer is the state of one engine.
type answer struct {
	Metrics string   `json:"metrics,omitempty"`
	Loaders []Status `json:"loaders"`
}

// Open starts to answer. Close ends it and removes the socket.
func Open(version string) *Engine {
	e := &Engine{version: version, stop: make(chan struct{})}
	if l, path, err := listen(); err == nil {
		e.listener, e.path = l, path
		e.done.Go(e.serve)
	}
	e.done.Go(e.watch)
	return e
}

// listen makes the socket of this process, which no other user can open.
func listen() (net.Listener, string, error) {
	dir, err := runfolder.Find(true)
	if err != nil {
		return nil, "", err
	}
	name := fmt.Sprintf("%s%d-%08x%s", prefix, os.Getpid(), rand.Uint32(), suffix)
	var l net.Listener
	err = inside(dir, name, func(path string) error {
		var err error
		listening := runfolder.Private()
		l, err = listening.Listen(context.Background(), "unix", path)
		return err
	})
	if err != nil {
		return nil, "", err
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false) // it has another path
	return l, filepath.Join(dir, name), nil
}

// inside calls do with a path of a file in dir that is short enough for a socket.
func inside(dir, name string, do func(path string) error) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return do(proc.FDPath(int(f.Fd())) + "/" + name)
}

// Add shows a pipeline of a training process, 0 if that is unknown.
func (e *Engine) Add(src Source, trainer int) *Loader {
	info := src.Info()
	l := &Loader{engine: e, src: src, waits: &waits{trainer: trainer, opened: steplog.Now()}}
	l.fixed = Status{
		Run: runOf(trainer, info.WorldSize), Rank: info.Rank, WorldSize: info.WorldSize,
		Engine: os.Getpid(), Trainer: trainer, Version: e.version, Source: source.Hide(info.URL, info.URL), Format: info.Format,
		Opened: float64(time.Now().UnixMilli()) / 1e3, BatchSize: info.BatchSize, Slots: info.Slots,
	}
	l.tick(time.Now())
	e.mu.Lock()
	defer e.mu.Unlock()
	l.fixed.Loader = e.next
	e.next++
	e.loaders = append(e.loaders, l)
	return l
}

func (e *Engine) remove(l *Loader) {
	e.mu.Lock()
	e.loaders = slices.DeleteFunc(e.loaders, func(x *Loader) bool { return x == l })
	e.mu.Unlock()
	l.reading.Lock()
	l.closed = true
	l.reading.Unlock()
	l.waits.close()
}

// all returns the loaders.
func (e *Engine) all() []*Loader {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.loaders)
}

// exports returns the address on which this engine exports metrics, "" if it does not.
func (e *Engine) exports() string {
	if x := e.exported(); x != nil {
		return x.serving()
	}
	return ""
}

func (e *Engine) exported() *exporter {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.export
}

// watch remembers the counters every second.
func (e *Engine) watch() {
	sweep()
	tick := time.NewTicker(Every)
	defer tick.Stop()
	for {
		select {
		case <-e.stop:
			return
		case now := <-tick.C:
			for _, l := range e.all() {
				l.tick(now)
			}
		}
	}
}

// serve answers each connection with the state of the loaders.
func (e *Engine) serve() {
	for {
		conn, err := e.listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // out of descriptors, for example
			select {
			case <-e.stop:
				return
			case <-time.After(Every):
			}
			continue
		}
		e.answer(conn)
	}
}

// answer writes to one connection. The state fits into the buffer of the socket, or the reader takes it.
func (e *Engine) answer(conn net.Conn) {
	defer conn.Close()
	e.mu.Lock()
	e.conn = conn
	e.mu.Unlock()
	_ = conn.SetDeadline(time.Now().Add(answerTime))
	data, err := json.Marshal(answer{Metrics: e.exports(), Loaders: e.statuses()})
	if err == nil {
		_, _ = conn.Write(data) // a reader that is gone does not matter
	}
}

func (e *Engine) statuses() []Status {
	out := []Status{}
	now := time.Now()
	for _, l := range e.all() {
		if s, ok := l.status(now); ok {
			out = append(out, s)
		}
	}
	return out
}

// Close removes the socket and stops. It waits neither for pipelines nor for readers.
func (e *Engine) Close() {
	e.once.Do(func() {
		close(e.stop)
		if e.listener != nil {
			_ = os.Remove(e.path)
			_ = e.listener.Close()
		}
		e.mu.Lock()
		if e.conn != nil {
			_ = e.conn.Close()
		}
		e.mu.Unlock()
		e.exporting.Lock()
		defer e.exporting.Unlock()
		if x := e.exported(); x != nil {
			x.close()
		}
		e.done.Wait()
		for _, l := range e.all() {
			e.remove(l)
		}
	})
}

// List returns the state of the loaders of all engines of this user on this node. An engine that does not answer in
// time is counted as silent.
func List(ctx context.Context) (all []Status, silent int, err error) {
	answers, silent, err := listAnswers(ctx)
	for _, a := range answers {
		all = append(all, a.Loaders...)
	}
	slices.SortFunc(all, func(a, b Status) int {
		return cmp.Or(cmp.Compare(a.Run, b.Run), cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.Engine, b.Engine), cmp.Compare(a.Loader, b.Loader))
	})
	return all, silent, err
}

func listAnswers(ctx context.Context) (all []answer, silent int, err error) {
	dir, err := runfolder.Find(false)
	if err != nil {
		if os.Getenv(runfolder.Env) == "off" {
			return nil, 0, err
		}
		return nil, 0, nil // no engine has made it
	}
	names, err := sockets(dir)
	if err != nil {
		return nil, 0, err
	}
	var mu sync.Mutex
	var wait sync.WaitGroup
	for _, name := range names {
		wait.Go(func() {
			found, err := ask(ctx, dir, name)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				all = append(all, found)
			case !gone(err):
				silent++
			}
		})
	}
	wait.Wait()
	return all, silent, ctx.Err()
}

// sockets lists the sockets of engines in a folder.
func sockets(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.Type()&fs.ModeSocket != 0 && strings.HasPrefix(e.Name(), prefix) && strings.HasSuffix(e.Name(), suffix) && len(names) < maxEngines {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// gone reports that no engine listens at a socket.
func gone(err error) bool { return errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.ENOENT) }

// ask reads the state of one engine.
func ask(ctx context.Context, dir, name string) (out answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	var conn net.Conn
	err = inside(dir, name, func(path string) error {
		var dialer net.Dialer
		conn, err = dialer.DialContext(ctx, "unix", path)
		return err
	})
	if err != nil {
		return out, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(answerTime))
	data, err := io.ReadAll(io.LimitReader(conn, maxAnswer))
	if err != nil {
		return out, err
	}
	if len(data) == 0 { // it is about to exit
		return out, nil
	}
	return out, json.Unmarshal(data, &out)
}

// sweep removes sockets of engines that were killed.
func sweep() {
	dir, err := runfolder.Find(false)
	if err != nil {
		return
	}
	names, err := sockets(dir)
	if err != nil {
		return
	}
	for _, name := range names {
		info, err := os.Lstat(filepath.Join(dir, name))
		if err != nil || time.Since(info.ModTime()) < staleAge {
			continue
		}
		err = inside(dir, name, func(path string) error {
			conn, err := net.DialTimeout("unix", path, answerTime)
			if err == nil {
				return conn.Close()
			}
			return err
		})
		if errors.Is(err, unix.ECONNREFUSED) {
			_ = os.Remove(filepath.Join(dir, name)) // another process may have done it
		}
	}
}

// Command flight sends batches from one process to another. It uses the code of feeders, or arrow-go's Flight package.
// The receiver prints its result as a line of JSON, which bench.feeders reads.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/signal"
	"runtime/pprof"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/stokerdata/stoker/internal/arena"
	"github.com/stokerdata/stoker/internal/feed"
	"github.com/stokerdata/stoker/internal/feed/feedclient"
	"github.com/stokerdata/stoker/internal/feed/feedserver"
	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/internal/pipeline"
)

// A batch: images as they train, and labels.
const (
	rows     = 256
	rowBytes = 224 * 224 * 3
	bytes    = rows * (rowBytes + 8)
	slots    = 4
	lanes    = 4
)

var arrays = []item.Array{
	{Name: "image", Kind: "image", DType: item.U8, Shape: []int{224, 224, 3}, RowBytes: rowBytes},
	{Name: "label", DType: item.I64, Offset: rows * rowBytes, RowBytes: 8},
}

func main() {
	how := flag.String("how", "stoker", "stoker or arrow-go")
	server := flag.Bool("serve", false, "send batches, and print the address")
	addr := flag.String("addr", "127.0.0.1:0", "the server")
	conns := flag.Int("connections", 1, "of arrow-go")
	seconds := flag.Float64("seconds", 5, "of receiving")
	cert := flag.String("cert", "", "the server's certificate, for TLS")
	key := flag.String("key", "", "its key")
	profile := flag.String("profile", "", "a file for a profile of the processor's time")
	flag.Parse()
	long := time.Duration(*seconds * float64(time.Second))
	if err := run(*how, *server, *addr, *conns, long, *cert, *key, *profile); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(how string, server bool, addr string, conns int, long time.Duration, cert, key, profile string) error {
	if profile != "" {
		f, err := os.Create(profile)
		if err != nil {
			return err
		}
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer f.Close()
		defer pprof.StopCPUProfile()
	}
	if server {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
		defer stop()
		l, err := net.Listen("tcp", addr)
		if err != nil {
			return err
		}
		if how == "arrow-go" {
			return serveArrow(ctx, l)
		}
		return serveOurs(ctx, l, cert, key)
	}
	receive := receiveArrow
	if how != "arrow-go" {
		c, err := feedclient.Open(feedclient.Options{
			Feeders: &pipeline.Feeders{Servers: addr, CA: cert}, ID: id, BatchSize: rows,
			Say: func(s string) { fmt.Fprintln(os.Stderr, s) },
		})
		if err != nil {
			return err
		}
		defer c.Close()
		receive = func(context.Context, string, int) (func(int64) error, error) { return receiveOurs(c), nil }
	}
	return measure(long, func(ctx context.Context) (func(int64) error, error) { return receive(ctx, addr, conns) })
}

// measure receives batches on several goroutines. The first second does not count.
func measure(long time.Duration, open func(ctx context.Context) (func(n int64) error, error)) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var n atomic.Int64
	var stop atomic.Bool
	var wg sync.WaitGroup
	errs := make([]error, lanes)
	for w := range lanes {
		wg.Go(func() {
			get, err := open(ctx)
			for err == nil && !stop.Load() {
				err = get(n.Add(1))
			}
			errs[w] = err
		})
	}
	time.Sleep(time.Second)
	before, cpu, began := n.Load(), seconds(), time.Now()
	time.Sleep(long)
	got, took, spent := n.Load()-before, time.Since(began).Seconds(), seconds()-cpu
	stop.Store(true)
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	result := map[string]any{"gb": float64(got) * bytes / 1e9, "seconds": took, "cpu": spent}
	return json.NewEncoder(os.Stdout).Encode(result)
}

func seconds() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

// Stoker: its server with slots that are always ready, and its client.

var id = pipeline.Hashes{Manifest: "bench", Pipeline: "bench"}

// ready is a pipeline whose batches are built already.
type ready struct {
	ring *arena.Ring
	free chan int
	asks chan int64
	last atomic.Int64
}

func (r *ready) Info() pipeline.Info              { return pipeline.Info{Arrays: arrays, Slots: slots} }
func (r *ready) Hashes() pipeline.Hashes          { return id }
func (r *ready) Config() pipeline.Config          { return pipeline.Config{} }
func (r *ready) Ring() *arena.Ring                { return r.ring }
func (r *ready) Asked() (feedserver.Asked, error) { return r, nil }
func (r *ready) Release(slot int)                 { r.free <- slot }

func (r *ready) Add(pipeline.Ask) (int64, error) {
	n := r.last.Add(1)
	r.asks <- n
	return n, nil
}

func (r *ready) Next(ctx context.Context) (ev pipeline.Event, err error) {
	ev.Kind, ev.Rows = pipeline.EventBatch, rows
	select {
	case ev.Number = <-r.asks:
	case <-ctx.Done():
		return ev, ctx.Err()
	}
	select {
	case ev.Slot = <-r.free:
	case <-ctx.Done():
		return ev, ctx.Err()
	}
	return ev, nil
}

func serveOurs(ctx context.Context, l net.Listener, cert, key string) error {
	ring, err := arena.NewRing(arena.NewBudget(1<<40), slots, bytes)
	if err != nil {
		return err
	}
	r := &ready{ring: ring, free: make(chan int, slots), asks: make(chan int64, 1<<10)}
	for k := range slots {
		fill(ring.Slot(k))
		r.free <- k
	}
	var opt feedserver.Options
	if cert != "" {
		if opt.TLS, err = feedserver.TLS(cert, key, ""); err != nil {
			return err
		}
	}
	s, err := feedserver.New(r, opt)
	if err != nil {
		return err
	}
	fmt.Println(l.Addr()) // the CPU time of what follows counts
	return s.Serve(ctx, l)
}

func receiveOurs(c *feedclient.Client) func(n int64) error {
	slot := make([]byte, bytes)
	return func(n int64) error {
		ask := pipeline.Ask{Step: n, Lo: n * rows, Hi: n*rows + rows}
		b := &pipeline.RemoteBatch{Ask: ask, Rows: rows, Arrays: arrays, Slot: slot, Order: n}
		err := c.Fetch(context.Background(), b)
		if err == nil && len(b.Copies) > 0 {
			c.Built(b, feed.Checksum(arrays, slot, rows))
		}
		return err
	}
}

func fill(b []byte) {
	src := rand.NewChaCha8([32]byte{1})
	_, _ = src.Read(b) // it never fails
}

// arrow-go: its Flight package as its examples use it, with messages as large as Stoker's.

type arrowServer struct {
	flight.BaseFlightServer
	schema *arrow.Schema
	parts  []arrow.RecordBatch
}

func (s *arrowServer) DoGet(_ *flight.Ticket, stream flight.FlightService_DoGetServer) error {
	w := flight.NewRecordWriter(stream, ipc.WithSchema(s.schema))
	for _, part := range s.parts {
		if err := w.Write(part); err != nil {
			return err
		}
	}
	return w.Close()
}

func serveArrow(ctx context.Context, l net.Listener) error {
	u8, i64 := arrow.PrimitiveTypes.Uint8, arrow.PrimitiveTypes.Int64
	image := arrow.FixedSizeListOf(rowBytes, u8)
	fields := []arrow.Field{{Name: "image", Type: image}, {Name: "label", Type: i64}}
	s := &arrowServer{schema: arrow.NewSchema(fields, nil)}
	pixels := make([]byte, rows*rowBytes)
	fill(pixels)
	column := func(t arrow.DataType, n int, b []byte) *array.Data {
		return array.NewData(t, n, []*memory.Buffer{nil, memory.NewBufferBytes(b)}, nil, 0, 0)
	}
	step := feed.ChunkBytes / (rowBytes + 8)
	for lo := 0; lo < rows; lo += step {
		n := min(step, rows-lo)
		values := column(u8, n*rowBytes, pixels[lo*rowBytes:(lo+n)*rowBytes])
		list := array.NewData(image, n, []*memory.Buffer{nil}, []arrow.ArrayData{values}, 0, 0)
		labels := array.NewInt64Data(column(i64, n, make([]byte, 8*n)))
		columns := []arrow.Array{array.NewFixedSizeListData(list), labels}
		s.parts = append(s.parts, array.NewRecordBatch(s.schema, columns, int64(n)))
	}
	server := flight.NewServerWithMiddleware(nil)
	server.InitListener(l)
	server.RegisterFlightService(s)
	defer context.AfterFunc(ctx, server.Shutdown)()
	fmt.Println(l.Addr())
	return server.Serve()
}

var (
	clientsMu sync.Mutex
	clients   []flight.Client
	taken     int
)

func receiveArrow(ctx context.Context, addr string, conns int) (func(n int64) error, error) {
	clientsMu.Lock()
	defer clientsMu.Unlock()
	if len(clients) < conns {
		c, err := flight.NewClientWithMiddleware(addr, nil, nil,
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
		if err != nil {
			return nil, err
		}
		clients = append(clients, c)
	}
	c := clients[taken%len(clients)]
	taken++
	return func(n int64) error {
		stream, err := c.DoGet(ctx, &flight.Ticket{Ticket: fmt.Appendf(nil, "%d", n)})
		if err != nil {
			return err
		}
		r, err := flight.NewRecordReader(stream)
		if err != nil {
			return err
		}
		defer r.Release()
		got := int64(0)
		for r.Next() {
			got += r.RecordBatch().NumRows()
		}
		if err := r.Err(); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if got != rows {
			return fmt.Errorf("%d rows", got)
		}
		return nil
	}, nil
}

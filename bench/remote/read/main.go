// Command read has the arms of bench.remote that are written in Go. It reads objects of a web server or a bucket into
// buffers, with the range reader of the stores or with a bare copy of sockets, which is the upper limit. It prints
// the result as a line of JSON.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"runtime/pprof"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/stokerdata/stoker/internal/store/httpfaulttest"
	"github.com/stokerdata/stoker/internal/store/stores"
)

func main() {
	how := flag.String("how", "stoker", "stoker, bare, or proxy")
	where := flag.String("url", "", "the object")
	block := flag.Int64("block", 8<<20, "bytes of a range")
	depth := flag.Int("depth", 16, "ranges at once")
	total := flag.Int64("bytes", 4<<30, "bytes to read")
	target := flag.String("target", "", "of a proxy: whom it stands in front of")
	listen := flag.String("listen", "127.0.0.1:0", "of a proxy: where")
	latency := flag.Duration("latency", 0, "of a proxy: how late it answers")
	jitter := flag.Duration("jitter", 0, "of a proxy: how much later at most, drawn each time")
	rate := flag.Float64("rate", 0, "of a proxy: bytes per second")
	profile := flag.String("profile", "", "of stoker and bare: a file for a profile of the processor's time")
	flag.Parse()
	if *profile != "" {
		f, err := os.Create(*profile)
		if err == nil {
			err = pprof.StartCPUProfile(f)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		defer pprof.StopCPUProfile()
	}
	var err error
	switch *how {
	case "stoker":
		err = ours(*where, *block, *total, *depth)
	case "bare":
		err = bare(*where, *block, *total, *depth)
	case "proxy":
		err = proxy(*target, *listen, &httpfaulttest.Throttle{Latency: *latency, Jitter: *jitter, BytesPerSecond: *rate})
	default:
		err = fmt.Errorf("-how %s is not known", *how)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run calls read for blocks, several at the same time, until enough is read, and prints the time. The first block of
// each reader, with its connection, does not count.
func run(size, block, total int64, depth int, open func() (read func(p []byte, off int64) error, err error)) error {
	if size < block {
		return fmt.Errorf("the object has %d bytes, less than a range", size)
	}
	var next atomic.Int64
	var wg, ready sync.WaitGroup
	errs := make(chan error, depth)
	begin := make(chan struct{})
	ready.Add(depth)
	for w := range depth {
		wg.Go(func() {
			buf := make([]byte, block)
			read, err := open()
			if err == nil {
				err = read(buf, int64(w)%(size/block)*block)
			}
			ready.Done()
			<-begin
			for err == nil {
				at := next.Add(block) - block
				if at >= total {
					return
				}
				err = read(buf, at/block%(size/block)*block)
			}
			errs <- err
		})
	}
	ready.Wait()
	cpu, start := used(), time.Now()
	close(begin)
	wg.Wait()
	took, spent := time.Since(start).Seconds(), used()-cpu
	select {
	case err := <-errs:
		return err
	default:
	}
	gb := float64((total+block-1)/block*block) / 1e9
	return json.NewEncoder(os.Stdout).Encode(map[string]float64{"gb": gb, "seconds": took, "gb_s": gb / took, "cpu_s_per_gb": spent / gb})
}

// used is the CPU time of this process.
func used() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

func ours(where string, block, total int64, depth int) error {
	ctx := context.Background()
	st, err := stores.Open(ctx, where)
	if err != nil {
		return err
	}
	defer st.Close()
	o, err := st.Open(ctx, "")
	if err != nil {
		return err
	}
	defer o.Close()
	return run(o.Size(), block, total, depth, func() (func([]byte, int64) error, error) {
		return func(p []byte, off int64) error { return o.ReadAt(ctx, p, off) }, nil
	})
}

// bare requests data from a web server over its own sockets and copies the answers.
func bare(where string, block, total int64, depth int) error {
	u, err := url.Parse(where)
	if err != nil {
		return err
	}
	open := func() (func([]byte, int64) (int64, error), error) {
		c, err := net.Dial("tcp", u.Host)
		if err != nil {
			return nil, err
		}
		in := bufio.NewReaderSize(c, 16<<10)
		return func(p []byte, off int64) (int64, error) {
			if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\nRange: bytes=%d-%d\r\n\r\n", u.RequestURI(), u.Host, off, off+int64(len(p))-1); err != nil {
				return 0, err
			}
			size := int64(0)
			for {
				line, err := in.ReadString('\n')
				if err != nil {
					return 0, err
				}
				if line == "\r\n" {
					break
				}
				if _, of, ok := strings.Cut(line, "/"); ok && strings.HasPrefix(strings.ToLower(line), "content-range:") {
					if _, err := fmt.Sscan(of, &size); err != nil {
						return 0, err
					}
				}
			}
			_, err := io.ReadFull(in, p)
			return size, err
		}, nil
	}
	first, err := open()
	if err != nil {
		return err
	}
	size, err := first(make([]byte, 1), 0)
	if err != nil {
		return err
	}
	return run(size, block, total, depth, func() (func([]byte, int64) error, error) {
		read, err := open()
		return func(p []byte, off int64) error { _, err := read(p, off); return err }, err
	})
}

// relay forwards connections until its input ends. It delays requests and passes answers on immediately, within the
// kernel. It simulates a network path, which takes no processor time. Reading each request and writing each answer
// would take a third of the time of the server's own work.
func relay(l net.Listener, to string, latency, jitter time.Duration) error {
	fmt.Printf("{\"url\":\"http://%s\"}\n", l.Addr())
	var ended atomic.Bool
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // until it ends
		ended.Store(true)
		_ = l.Close()
	}()
	for {
		near, err := l.Accept()
		if ended.Load() {
			return nil
		}
		if err != nil {
			return err
		}
		go func() {
			defer near.Close()
			far, err := net.Dial("tcp", to)
			if err != nil {
				return
			}
			defer far.Close()
			go func() {
				defer near.Close()
				_, _ = io.Copy(near, far) // the client sees the end
			}()
			b := make([]byte, 16<<10) // a request, of which there is one at a time
			for {
				n, err := near.Read(b)
				if err != nil {
					return
				}
				wait := latency
				if jitter > 0 {
					wait += rand.N(jitter)
				}
				time.Sleep(wait)
				if _, err := far.Write(b[:n]); err != nil {
					return
				}
			}
		}()
	}
}

// proxy forwards requests to a server until its input ends. It delays answers and limits their rate.
func proxy(target, listen string, throttle *httpfaulttest.Throttle) error {
	u, err := url.Parse(target)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	if throttle.BytesPerSecond == 0 {
		return relay(l, u.Host, throttle.Latency, throttle.Jitter)
	}
	to := &httputil.ReverseProxy{
		Transport: &http.Transport{MaxIdleConnsPerHost: 512, DisableCompression: true},
		ErrorLog:  log.New(io.Discard, "", 0), // the client may stop waiting
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(u)
			r.Out.Host = r.In.Host // it is signed
		},
	}
	fmt.Printf("{\"url\":\"http://%s\"}\n", l.Addr())
	throttle.Handler = to
	s := &http.Server{Handler: throttle, ReadHeaderTimeout: time.Minute}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // until it ends
		_ = s.Close()
	}()
	if err := s.Serve(l); err != http.ErrServerClosed {
		return err
	}
	return nil
}

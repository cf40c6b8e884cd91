// Command slow is a file system or an HTTP server that is slower than it need
// be: it serves a folder, waits before each request and limits the bandwidth.
//
//	slow fs   [-latency 5ms] [-bandwidth 20e6] FOLDER MOUNTPOINT
//	slow http [-latency 5ms] [-bandwidth 20e6] FOLDER
//
// It prints "ready ADDRESS" when it serves. It unmounts and exits when its standard input is closed, so that it never
// outlives its parent.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// A brake delays requests: each one by the latency, and all of them together
// to so many bytes per second.
type brake struct {
	latency   time.Duration
	bandwidth float64 // bytes per second; 0: no limit

	mu   sync.Mutex
	free time.Time // when the line has nothing more to send
}

// request waits for the time of a request.
func (b *brake) request() { time.Sleep(b.latency) }

// transfer waits until n bytes have passed the line.
func (b *brake) transfer(n int) {
	if b.bandwidth <= 0 || n <= 0 {
		return
	}
	b.mu.Lock()
	now := time.Now()
	if b.free.Before(now) {
		b.free = now
	}
	b.free = b.free.Add(time.Duration(float64(n) / b.bandwidth * float64(time.Second)))
	wait := b.free.Sub(now)
	b.mu.Unlock()
	time.Sleep(wait)
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "slow: %v\n", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 || args[0] != "fs" && args[0] != "http" {
		return fmt.Errorf("want fs or http, then its options")
	}
	flags := flag.NewFlagSet("slow "+args[0], flag.ContinueOnError)
	b := &brake{}
	flags.DurationVar(&b.latency, "latency", 0, "delay of each request")
	flags.Float64Var(&b.bandwidth, "bandwidth", 0, "bytes per second of all requests together; 0: no limit")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	folder := flags.Arg(0)
	if s, err := os.Stat(folder); err != nil {
		return err
	} else if !s.IsDir() {
		return fmt.Errorf("%s is not a folder", folder)
	}
	var address string
	var stop func() error
	var err error
	if args[0] == "fs" {
		address, stop, err = serveFS(folder, flags.Arg(1), b)
	} else {
		address, stop, err = serveHTTP(folder, b)
	}
	if err != nil {
		return err
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	closed := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(closed)
	}()
	fmt.Println("ready", address)
	select {
	case <-signals:
	case <-closed:
	}
	return stop()
}

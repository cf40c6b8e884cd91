package main

import (
	"net"
	"net/http"
	"time"
)

// serveHTTP serves a folder on a free port of this machine.
func serveHTTP(folder string, b *brake) (address string, stop func() error, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	files := http.FileServer(http.Dir(folder))
	server := &http.Server{
		ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b.request()
			if b.bandwidth > 0 {
				w = &braked{w, b}
			}
			files.ServeHTTP(w, r)
		}),
	}
	go func() { _ = server.Serve(listener) }()
	return "http://" + listener.Addr().String(), server.Close, nil
}

// braked is an answer whose bytes are slowed down by the brake.
type braked struct {
	http.ResponseWriter
	brake *brake
}

func (w *braked) Write(data []byte) (int, error) {
	w.brake.transfer(len(data))
	return w.ResponseWriter.Write(data)
}

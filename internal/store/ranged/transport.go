package ranged

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// maxIdle is the maximum number of idle connections to an endpoint: as many as there may be reads in flight. With
// fewer, new ones with TLS would be opened all the time.
const maxIdle = 512

// connections are the connections to an endpoint, including those opened ahead. Requests without a body use links
// if possible.
type connections struct {
	*http.Transport
	links *links // nil for none
	ahead *ahead
}

// RoundTrip sends a request and returns its response.
func (c *connections) RoundTrip(req *http.Request) (*http.Response, error) {
	if resp, ours, err := c.links.roundTrip(req); ours {
		return resp, err
	}
	return c.Transport.RoundTrip(req)
}

// closeIdle closes all idle connections.
func (c *connections) closeIdle() {
	c.CloseIdleConnections()
	if c.links != nil {
		c.links.closeIdle()
	}
	c.ahead.drop()
}

var (
	transports   = map[transportKey]*connections{}
	transportsMu sync.Mutex
)

// transportKey identifies shared connections.
type transportKey struct {
	endpoint, bundle string
	dial, handshake  time.Duration
}

// transportOf returns the connections to an endpoint.
func transportOf(endpoint string, opt *Options) (*connections, error) {
	key := transportKey{endpoint, opt.CABundle, opt.Dial, opt.Handshake}
	transportsMu.Lock()
	defer transportsMu.Unlock()
	if t := transports[key]; t != nil {
		return t, nil
	}
	t, err := newConnections(endpoint, opt)
	if err == nil {
		transports[key] = t
	}
	return t, err
}

// CloseIdle closes all idle connections. Others close after a while.
func CloseIdle() {
	transportsMu.Lock()
	defer transportsMu.Unlock()
	for _, t := range transports {
		t.closeIdle()
	}
}

func newConnections(endpoint string, opt *Options) (*connections, error) {
	u, err := url.Parse(endpoint)
	if err != nil {
		return nil, err
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, ClientSessionCache: tls.NewLRUClientSessionCache(0)}
	if opt.CABundle != "" {
		pool, err := x509.SystemCertPool()
		if err != nil {
			pool = x509.NewCertPool()
		}
		text, err := os.ReadFile(opt.CABundle)
		if err != nil {
			return nil, fmt.Errorf("cannot read the CA bundle: %w", err)
		}
		if !pool.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("the CA bundle %s has no certificate in PEM form", opt.CABundle)
		}
		conf.RootCAs = pool
	}
	d := &dialer{net: net.Dialer{Timeout: opt.Dial, KeepAlive: 30 * time.Second}}
	p := new(http.Protocols)
	p.SetHTTP1(true)
	own := address(u) // a proxy has another address
	c := &connections{}
	open := func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := d.dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return newSocket(conn), nil
	}
	if u.Scheme == "https" {
		open = func(ctx context.Context, network, addr string) (net.Conn, error) {
			return d.dialTLS(ctx, network, addr, conf, opt.Handshake)
		}
	}
	c.ahead = newAhead(opt.Dial+opt.Handshake, func(ctx context.Context) (net.Conn, error) { return open(ctx, "tcp", own) })
	// next returns a connection that was opened ahead, or a new one.
	next := func(ctx context.Context) (net.Conn, error) {
		if conn := c.ahead.take(ctx); conn != nil {
			return conn, nil
		}
		return open(ctx, "tcp", own)
	}
	c.links = newLinks(u, next)
	dial := func(secure bool, other func(ctx context.Context, network, addr string) (net.Conn, error)) func(ctx context.Context, network, addr string) (net.Conn, error) {
		return func(ctx context.Context, network, addr string) (net.Conn, error) {
			if addr != own || secure != (u.Scheme == "https") {
				return other(ctx, network, addr) // a proxy
			}
			return next(ctx)
		}
	}
	c.Transport = &http.Transport{
		Proxy:       proxy,
		DialContext: dial(false, d.dial),
		DialTLSContext: dial(true, func(ctx context.Context, network, addr string) (net.Conn, error) {
			return d.dialTLS(ctx, network, addr, conf, opt.Handshake)
		}),
		TLSClientConfig:     conf,
		TLSHandshakeTimeout: opt.Handshake,
		// One HTTP/2 connection reaches a fraction of the throughput of many HTTP/1.1 connections.
		Protocols:              p,
		MaxIdleConns:           maxIdle,
		MaxIdleConnsPerHost:    maxIdle,
		IdleConnTimeout:        keepIdle,
		DisableCompression:     true, // ranges refer to the stored bytes
		MaxResponseHeaderBytes: maxHeader,
		ExpectContinueTimeout:  time.Second,
	}
	return c, nil
}

// address returns host:port of an endpoint.
func address(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// proxy returns the proxy of the environment. net/http's error is not shown, because it has the proxy's URL and so
// maybe a password.
func proxy(r *http.Request) (u *url.URL, err error) {
	if u, err = http.ProxyFromEnvironment(r); err != nil {
		return nil, permanent("HTTP_PROXY or HTTPS_PROXY is not a proxy URL")
	}
	return u, nil
}

// dialer spreads connections over the addresses of a host, because each may be another machine.
type dialer struct {
	net  net.Dialer
	next atomic.Uint32
	// lookup replaces the system's resolver in tests.
	lookup func(ctx context.Context, host string) ([]string, error)
}

// dialTLS returns a new connection with TLS.
func (d *dialer) dialTLS(ctx context.Context, network, addr string, conf *tls.Config, within time.Duration) (net.Conn, error) {
	c, err := d.dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	conf = conf.Clone()
	if conf.ServerName, _, err = net.SplitHostPort(addr); err == nil {
		ctx, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		t := tls.Client(c, conf)
		if err = t.HandshakeContext(ctx); err == nil {
			return t, nil
		}
	}
	_ = c.Close() // the first error is returned
	return nil, err
}

// dial returns a new connection.
func (d *dialer) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || net.ParseIP(host) != nil {
		return d.net.DialContext(ctx, network, addr)
	}
	lookup := d.lookup
	if lookup == nil {
		lookup = net.DefaultResolver.LookupHost
	}
	lctx, cancel := context.WithTimeout(ctx, d.net.Timeout)
	all, err := lookup(lctx, host)
	cancel()
	if err != nil {
		return nil, err
	}
	from := int(d.next.Add(1) % uint32(len(all)))
	var last error
	for i := range all {
		var conn net.Conn
		if conn, last = d.net.DialContext(ctx, network, net.JoinHostPort(all[(from+i)%len(all)], port)); last == nil {
			return conn, nil
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, last
}

// isTLS reports whether an error means that a connection cannot be trusted.
func isTLS(err error) bool {
	var alert tls.AlertError
	var cert *tls.CertificateVerificationError
	var head tls.RecordHeaderError
	var unknown x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	return errors.As(err, &alert) || errors.As(err, &cert) || errors.As(err, &head) || errors.As(err, &unknown) || errors.As(err, &host) || errors.As(err, &invalid)
}

// tlsText returns the reason and a hint.
func tlsText(err error) string {
	var unknown x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	var head tls.RecordHeaderError
	switch {
	case errors.As(err, &unknown):
		return "its certificate is not signed by a known authority: set STOKER_CA_BUNDLE to a file with it"
	case errors.As(err, &host):
		return "its certificate is for another host"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "its certificate is not valid at this time"
	case errors.As(err, &head):
		return "the server does not use TLS on this port"
	}
	return "TLS fails"
}

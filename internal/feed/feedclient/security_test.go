package feedclient

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/stokerdata/stoker/internal/feed"
	"github.com/stokerdata/stoker/internal/feed/feedserver"
	"github.com/stokerdata/stoker/internal/pipeline"
)

// counted is a pipeline that counts the records that it decodes.
func counted() (pipeline.Config, *atomic.Int64) {
	cfg, n := config(), new(atomic.Int64)
	cfg.Decoding = func(int64) { n.Add(1) }
	return cfg, n
}

// Tickets that are not to be served are refused before anything is read.
func TestRefusedTickets(t *testing.T) {
	cfg, read := counted()
	secret := feed.Secret("0123456789abcdef")
	addr, _ := serve(t, cfg, feedserver.Options{Secret: secret})
	p := open(t, config())
	good := feed.Ticket{Manifest: p.Hashes().Manifest, Pipeline: p.Hashes().Pipeline, Seed: 5, Rows: feed.Rows{Hi: 20}}
	token := func(manifest, pipeline string, until time.Duration, s feed.Secret) *feed.Token {
		tok, err := feed.ParseToken(s.Token(feed.Claims{Manifest: manifest, Pipeline: pipeline, Expires: time.Now().Add(until).Unix()}))
		if err != nil {
			t.Fatal(err)
		}
		return tok
	}
	mine := token(good.Manifest, good.Pipeline, time.Hour, secret)
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ask := func(raw []byte, authorization string) error {
		ctx := t.Context()
		if authorization != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "authorization", authorization)
		}
		stream, err := conn.NewStream(ctx, &feed.GetStream, feed.DoGet, grpc.ForceCodecV2(feed.Codec{}))
		if err != nil {
			return err
		}
		if err := stream.SendMsg(&feed.RawTicket{Bytes: raw}); err != nil {
			t.Log(err) // RecvMsg has the reason
		}
		if err := stream.CloseSend(); err != nil {
			return err
		}
		var d feed.Data
		defer d.Free()
		return stream.RecvMsg(&d)
	}
	change := func(f func(*feed.Ticket)) []byte {
		x := good
		f(&x)
		return x.Text()
	}
	now := time.Now()
	for name, c := range map[string]struct {
		raw   []byte
		token *feed.Token
		at    time.Time
		code  codes.Code
	}{
		"no token":           {good.Text(), nil, now, codes.Unauthenticated},
		"expired token":      {good.Text(), token(good.Manifest, good.Pipeline, -time.Second, secret), now, codes.Unauthenticated},
		"another secret":     {good.Text(), token(good.Manifest, good.Pipeline, time.Hour, feed.Secret("fedcba9876543210")), now, codes.Unauthenticated},
		"another scope":      {good.Text(), token("other", good.Pipeline, time.Hour, secret), now, codes.PermissionDenied},
		"an old request":     {good.Text(), mine, now.Add(-time.Hour), codes.Unauthenticated},
		"a future request":   {good.Text(), mine, now.Add(time.Hour), codes.Unauthenticated},
		"traversal":          {change(func(x *feed.Ticket) { x.Manifest = "../../etc/passwd" }), mine, now, codes.InvalidArgument},
		"a path":             {[]byte(`{"manifest": "a", "pipeline": "b", "source": "/etc/passwd"}`), mine, now, codes.InvalidArgument},
		"too large":          {bytes.Repeat([]byte(" "), 1<<20), mine, now, codes.ResourceExhausted},
		"a little too large": {append(good.Text(), bytes.Repeat([]byte(" "), feed.MaxTicket)...), mine, now, codes.ResourceExhausted},
		"two tickets":        {append(good.Text(), good.Text()...), mine, now, codes.InvalidArgument},
		"negative":           {change(func(x *feed.Ticket) { x.Epoch = -1 }), mine, now, codes.InvalidArgument},
		"another seed":       {change(func(x *feed.Ticket) { x.Seed = 6 }), mine, now, codes.NotFound},
		"too many rows":      {change(func(x *feed.Ticket) { x.Rows.Hi = 21 }), mine, now, codes.OutOfRange},
		"far away":           {change(func(x *feed.Ticket) { x.Rows = feed.Rows{Lo: 1 << 62, Hi: 1<<62 + 1} }), mine, now, codes.OutOfRange},
		"far ahead":          {change(func(x *feed.Ticket) { x.Epoch = 1 << 60 }), mine, now, codes.OutOfRange},
		"a stride":           {change(func(x *feed.Ticket) { x.Rows.Stride = 1 << 62 }), mine, now, codes.OutOfRange},
	} {
		header := ""
		if c.token != nil {
			header = c.token.Sign(c.raw, c.at)
		}
		if err := ask(c.raw, header); status.Code(err) != c.code {
			t.Errorf("%s: %v, expected %v", name, err, c.code)
		}
	}
	header := mine.Sign(good.Text(), now)
	if err := ask(change(func(x *feed.Ticket) { x.Epoch = 1 }), header); status.Code(err) != codes.Unauthenticated {
		t.Errorf("the signature of another ticket: %v", err)
	}
	if n := read.Load(); n != 0 {
		t.Errorf("%d records were read for tickets that were refused", n)
	}
	if err := ask(good.Text(), header); err != nil {
		t.Errorf("a good ticket: %v", err)
	}
	before := read.Load()
	if err := ask(good.Text(), header); status.Code(err) != codes.Unauthenticated || !strings.Contains(err.Error(), "sent before") {
		t.Errorf("a replayed request: %v", err)
	}
	if n := read.Load() - before; n != 0 || before == 0 {
		t.Errorf("%d records were read for a replayed request, %d for a good one", n, before)
	}
}

// authority signs certificates for 127.0.0.1.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	ca   string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir()}
	a.ca, _, a.cert, a.key = a.issue(t, "ca", time.Hour, nil)
	return a
}

// issue writes a certificate and its key.
func (a *authority) issue(t *testing.T, name string, valid time.Duration, parent *authority) (certFile, keyFile string, cert *x509.Certificate, key *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(valid),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, IsCA: parent == nil, BasicConstraintsValid: true,
	}
	signer, signing := template, key
	if parent != nil {
		signer, signing = parent.cert, parent.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, signer, &key.PublicKey, signing)
	if err != nil {
		t.Fatal(err)
	}
	if cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(a.dir, name+".pem"), filepath.Join(a.dir, name+".key")
	for file, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certFile, keyFile, cert, key
}

// With an authority, only clients with a certificate of it get batches, and only of a server with one.
func TestCertificates(t *testing.T) {
	a, foreign := newAuthority(t), newAuthority(t)
	serverCert, serverKey, _, _ := a.issue(t, "server", time.Hour, a)
	tls, err := feedserver.TLS(serverCert, serverKey, a.ca)
	if err != nil {
		t.Fatal(err)
	}
	cfg, read := counted()
	addr, _ := serve(t, cfg, feedserver.Options{TLS: tls})
	p := open(t, config())
	fetch := func(f pipeline.Feeders) error {
		f.Servers = addr
		c := client(t, p, Options{Feeders: &f})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		return c.Fetch(ctx, &asks(p, 0, false)[0])
	}
	good, goodKey, _, _ := a.issue(t, "client", time.Hour, a)
	old, oldKey, _, _ := a.issue(t, "old", -time.Hour, a)
	other, otherKey, _, _ := foreign.issue(t, "other", time.Hour, foreign)
	for name, f := range map[string]pipeline.Feeders{
		"no TLS":              {},
		"no certificate":      {CA: a.ca},
		"expired certificate": {CA: a.ca, Cert: old, Key: oldKey},
		"foreign certificate": {CA: a.ca, Cert: other, Key: otherKey},
		"an untrusted server": {CA: foreign.ca, Cert: good, Key: goodKey},
	} {
		if err := fetch(f); err == nil {
			t.Errorf("%s: a batch came", name)
		}
	}
	if n := read.Load(); n != 0 {
		t.Errorf("%d records were read for clients that were refused", n)
	}
	if err := fetch(pipeline.Feeders{CA: a.ca, Cert: good, Key: goodKey}); err != nil {
		t.Errorf("a good certificate: %v", err)
	}
	for name, f := range map[string]pipeline.Feeders{
		"a key without a certificate": {Key: goodKey}, "no authority": {Cert: good, Key: goodKey}, "no file": {CA: a.ca + "x"},
		"not PEM": {CA: goodKey}, "no token file": {Token: a.ca + "x"}, "not a token": {Token: a.ca},
	} {
		f.Servers = addr
		if c, err := Open(Options{Feeders: &f}); err == nil {
			c.Close()
			t.Errorf("%s: accepted", name)
		}
	}
}

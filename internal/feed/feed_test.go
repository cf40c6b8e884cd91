package feed

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"
)

func TestTicketText(t *testing.T) {
	for _, want := range []Ticket{
		{Manifest: "ab12", Pipeline: "cd:34", Seed: 1<<64 - 1, Epoch: 2, Batch: 3, Rows: Rows{Lo: 4, Hi: 9}},
		{Manifest: "a", Pipeline: "b", Rows: Rows{Lo: 1, Hi: 1, Stride: 8}},
	} {
		got, err := ParseTicket(want.Text())
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v", want.Text(), got, err)
		}
	}
}

func TestSecrets(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	for text, ok := range map[string]bool{"": false, "short": false, "  0123456789abcdef\n": true} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := ReadSecret(path)
		if (err == nil) != ok || ok && string(s) != "0123456789abcdef" {
			t.Errorf("%q: %q, %v", text, s, err)
		}
	}
}

// A guard forgets requests whose time is too old to be accepted again.
func TestGuardForgets(t *testing.T) {
	secret := Secret("0123456789abcdef")
	g := NewGuard(secret)
	ticket := Ticket{Manifest: "a", Pipeline: "b"}
	now := time.Unix(1e9, 0)
	token, err := ParseToken(secret.Token(Claims{Manifest: "a", Pipeline: "b", Expires: now.Unix() + 1e6}))
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if err := g.Check(token.Sign(ticket.Text(), now), ticket.Text(), &ticket, now); err != nil {
			t.Fatal(err)
		}
		now = now.Add(time.Minute)
	}
	if n := len(g.seen); n > 4 {
		t.Errorf("%d requests are remembered", n)
	}
}

func FuzzTicket(f *testing.F) {
	good := Ticket{Manifest: "ab12", Pipeline: "cd34", Seed: 7, Epoch: 1, Batch: 2, Rows: Rows{Lo: 3, Hi: 5, Stride: 2}}
	f.Add(good.Text())
	f.Add([]byte(`{"manifest":"../x","pipeline":"b"}`))
	f.Add([]byte(`{"rows":[1]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		ticket, err := ParseTicket(raw)
		if err != nil {
			if ticket != (Ticket{}) {
				t.Errorf("a ticket together with the error %v", err)
			}
			return
		}
		again, err := ParseTicket(ticket.Text())
		if ticket.Rows.Stride == 1 {
			ticket.Rows.Stride = 0 // the same rows
		}
		if err != nil || again != ticket {
			t.Errorf("%+v is written as %+v, %v", ticket, again, err)
		}
	})
}

func FuzzAuthorization(f *testing.F) {
	secret := Secret("0123456789abcdef")
	ticket := Ticket{Manifest: "a", Pipeline: "b"}
	now := time.Unix(1e9, 0)
	token, err := ParseToken(secret.Token(Claims{Manifest: "a", Pipeline: "b", Expires: now.Unix() + 10}))
	if err != nil {
		f.Fatal(err)
	}
	once := make([]byte, onceSize) // the same in all processes of a fuzz run
	binary.BigEndian.PutUint64(once, uint64(now.Unix()))
	good := token.header(ticket.Text(), once)
	f.Add(good)
	f.Add("Stoker a.b.c")
	f.Add(secret.Token(Claims{}))
	f.Fuzz(func(t *testing.T, header string) {
		_, _ = ParseToken(header) // must not panic
		if err := NewGuard(secret).Check(header, ticket.Text(), &ticket, now); err == nil && header != good {
			t.Errorf("%q was accepted", header)
		}
	})
}

func FuzzMessage(f *testing.F) {
	b, err := Codec{}.Marshal(&Data{Header: []byte("header"), Meta: []byte("meta"), Body: [][]byte{[]byte("body")}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b.Materialize())
	f.Add(appendField(nil, tagTicket, []byte("ticket")))
	f.Add([]byte{0x12, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, message []byte) {
		var d, again Data
		if Unmarshal(message, &d) == nil {
			b, err := Codec{}.Marshal(&d)
			if err != nil {
				t.Fatal(err)
			}
			if err := Unmarshal(b.Materialize(), &again); err != nil || !reflect.DeepEqual(len(d.Header)+len(d.Meta), len(again.Header)+len(again.Meta)) || d.Size() != again.Size() {
				t.Errorf("%v is read as %v: %v", d, again, err)
			}
		}
		var ticket RawTicket
		_ = Unmarshal(message, &ticket) // must not panic
	})
}

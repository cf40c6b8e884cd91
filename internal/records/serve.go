package records

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// maxRequest is the size of the largest request.
const maxRequest = 64 << 20

// Serve serves the clients that connect to a listening socket, until the socket is closed. Each
// message is its length in 4 bytes and JSON. The first message to a client comes with the file of
// the shared memory and is empty.
func (s *Server) Serve(ctx context.Context, l *net.UnixListener) error {
	for {
		conn, err := l.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("accepting a client: %w", err)
		}
		// The goroutine ends when its client closes the connection.
		go func() {
			defer conn.Close()
			if err := s.client(ctx, conn); err != nil && !errors.Is(err, io.EOF) {
				fmt.Fprintln(os.Stderr, "stoker: a client of records:", err)
			}
		}()
	}
}

// sameUser returns an error if a client is a process of another user.
func sameUser(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) { cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return err
	}
	if credErr != nil {
		return credErr
	}
	if int(cred.Uid) != os.Getuid() {
		return fmt.Errorf("user %d may not connect", cred.Uid)
	}
	return nil
}

// client answers the requests of one client.
func (s *Server) client(ctx context.Context, conn *net.UnixConn) error {
	if err := sameUser(conn); err != nil {
		return err
	}
	m, err := newMemory()
	if err != nil {
		return err
	}
	defer m.close()
	if _, _, err := conn.WriteMsgUnix(make([]byte, 4), unix.UnixRights(int(m.file.Fd())), nil); err != nil {
		return err
	}
	server := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	requests := make(chan *Request)
	failed := make(chan error, 1)
	go func() { // notices that the client has gone while its request is answered
		defer cancel()
		for {
			r, err := receive(conn)
			if err != nil {
				failed <- err
				return
			}
			select {
			case requests <- r:
			case <-ctx.Done():
				failed <- ctx.Err()
				return
			}
		}
	}()
	for {
		var r *Request
		select {
		case r = <-requests:
		case err := <-failed:
			return err
		}
		out, err := json.Marshal(s.answer(server, ctx, r, m))
		if err != nil {
			return err
		}
		message := binary.LittleEndian.AppendUint32(make([]byte, 0, 4+len(out)), uint32(len(out)))
		if _, err := conn.Write(append(message, out...)); err != nil {
			return err
		}
	}
}

// receive reads a request.
func receive(conn io.Reader) (*Request, error) {
	var head [4]byte
	if _, err := io.ReadFull(conn, head[:]); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint32(head[:])
	if n > maxRequest {
		return nil, fmt.Errorf("a request of %d bytes", n)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(conn, b); err != nil {
		return nil, err
	}
	r := &Request{}
	if err := json.Unmarshal(b, r); err != nil {
		return nil, fmt.Errorf("a request that is not JSON: %w", err)
	}
	return r, nil
}

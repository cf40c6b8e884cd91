package cli

import (
	"context"
	"net"
	"os"
	"os/signal"
	"runtime"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/internal/records"
)

func newRecordsCommand(app *App) *cobra.Command {
	var fd, parent int
	cmd := &cobra.Command{
		Use:    "records",
		Short:  "Serve single records to a Python process, for its datasets",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return serveRecords(app.Context, fd, parent)
		},
	}
	cmd.Flags().IntVar(&fd, "fd", -1, "listen on this inherited socket")
	cmd.Flags().IntVar(&parent, "parent", 0, "end when this process, the parent, has ended")
	return cmd
}

// serveRecords serves records until the process that started this one has ended.
func serveRecords(ctx context.Context, fd, parent int) error {
	signal.Ignore(os.Interrupt, unix.SIGTERM, unix.SIGHUP) // the end of the parent ends it
	if fd < 3 {
		return usageError("", "--fd %d is not an inherited socket", fd)
	}
	unix.CloseOnExec(fd)
	f := os.NewFile(uintptr(fd), "records")
	l, err := net.FileListener(f)
	f.Close() // FileListener has a copy
	if err != nil {
		return &Error{Msg: "cannot serve records", Err: err}
	}
	listener, ok := l.(*net.UnixListener)
	if !ok {
		return usageError("", "--fd %d is not a Unix socket", fd)
	}
	listener.SetUnlinkOnClose(false)
	orphaned := make(chan struct{})
	if err := watchParent(parent, orphaned); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- records.NewServer(runtime.GOMAXPROCS(0)).Serve(ctx, listener) }()
	select {
	case <-orphaned:
		return nil
	case err := <-ended:
		return err
	}
}

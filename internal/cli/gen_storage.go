package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/internal/gen/storage"
	"github.com/stokerdata/stoker/internal/units"
	"github.com/stokerdata/stoker/store"
)

func newGenStorageCommand(app *App) *cobra.Command {
	var workload string
	opt := storage.Options{}
	cmd := &cobra.Command{
		Use:   "storage OUT",
		Short: "Generate files in the shapes of a storage benchmark",
		Long: `Generate files in the shapes of the MLPerf storage benchmark, to measure how fast bytes
are read: valid .npz and TFRecord files of the published sizes. Their bytes cannot be
compressed.

  unet3d     volumes of 146.6 MB, a .npz file each             (168 files at scale 1)
  resnet50   records of 114,660 bytes, 1,251 in a TFRecord file      (1,024 files)
  cosmoflow  volumes of 2.83 MB, a TFRecord file each              (524,288 files)

The files are in OUT/train, and OUT/storage.json describes them. The same options give the
same bytes.`,
		Example: `  stoker gen storage unet/ --workload unet3d --files 40        # 5.9 GB
  stoker gen storage res/ --workload resnet50 --scale 0.01`,
		Args: exactArgs("OUT"),
		RunE: func(_ *cobra.Command, args []string) error {
			w, ok := storage.Find(workload)
			if !ok {
				return usageError("stoker gen storage OUT --workload unet3d", "--workload %q: it is unet3d, resnet50 or cosmoflow", workload)
			}
			opt.Workload = w
			if err := opt.Check(); err != nil {
				return &Error{Code: ExitUsage, Err: err}
			}
			return app.genStorage(filepath.Clean(args[0]), opt)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&workload, "workload", "", "`NAME`: unet3d, resnet50 or cosmoflow")
	flags.Float64Var(&opt.Scale, "scale", 0.01, "part of the published number of files")
	flags.IntVar(&opt.Files, "files", 0, "number of files (instead of --scale)")
	flags.StringVar(&opt.Format, "format", "", "npz, tfrecord or indexed_binary (default: as published)")
	flags.Uint64Var(&opt.Seed, "seed", 0, "another number gives other bytes")
	cmd.MarkFlagsMutuallyExclusive("scale", "files")
	return cmd
}

func (app *App) genStorage(out string, opt storage.Options) error {
	if entries, err := os.ReadDir(out); err == nil && len(entries) > 0 {
		return &Error{Msg: out + " is not empty", Hint: "choose another folder"}
	} else if err != nil && !errors.Is(err, os.ErrNotExist) {
		return &Error{Msg: "cannot write to " + out, Err: store.Cause(err), Hint: "OUT must be a new or an empty folder"}
	}
	parent := filepath.Dir(out)
	if err := os.MkdirAll(parent, 0o777); err != nil { // for the free space below
		return &Error{Msg: "cannot create the folder of " + out, Err: store.Cause(err)}
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(parent, &fs); err == nil {
		if free := int64(fs.Bavail) * fs.Bsize; free < opt.Bytes() {
			return &Error{
				Msg:  fmt.Sprintf("%s files of %s are %s, there is room for %s", units.Int(int64(opt.Files)), opt.Workload.Name, units.Bytes(opt.Bytes()), units.Bytes(free)),
				Hint: "make room, or generate fewer with --files or --scale",
			}
		}
	}
	start := time.Now()
	var d *storage.Description
	err := writeFolder(out, func(work string) (string, error) {
		finished := filepath.Join(work, "storage")
		if err := os.Mkdir(finished, 0o777); err != nil {
			return "", &Error{Msg: "cannot write " + out, Err: store.Cause(err)}
		}
		progress := app.NewProgress("generating", "files", int64(opt.Files))
		defer progress.Stop()
		var err error
		d, err = storage.Write(app.Context, finished, opt, func(n int64) { progress.Add(1, n) })
		if err != nil && app.Context.Err() == nil {
			err = &Error{Msg: "cannot write " + out, Err: store.Cause(err), Hint: "nothing was left behind"}
		}
		return finished, err
	})
	if err != nil {
		return err
	}
	seconds := time.Since(start)
	_, err = fmt.Fprintf(app.Stdout, "%s: %s, %s files of %s records in all, %s, in %s (%s/s)\n", out, d.Name, units.Int(int64(d.Files)), units.Int(d.Records),
		units.Bytes(d.Bytes), units.Elapsed(seconds), units.Bytes(int64(float64(d.Bytes)/seconds.Seconds())))
	return err
}

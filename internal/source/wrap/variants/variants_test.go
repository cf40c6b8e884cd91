package variants

import (
	"testing"

	"github.com/stokerdata/stoker/internal/source/sourcetest"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/drivertest"
)

func TestWrapped(t *testing.T) {
	drivertest.Wrapped(t, drivertest.Wrapping{
		Open: func(testing.TB) driver.Source {
			fields := []driver.Field{
				{Name: "image~0", Kind: driver.KindImage, MaxBytes: 12, Width: 2, Height: 2, Channels: 3},
				{Name: "image~1", Kind: driver.KindImage, MaxBytes: 12, Width: 2, Height: 2, Channels: 3},
				{Name: "text", Kind: driver.KindText, MaxBytes: 12},
			}
			return sourcetest.NewMemory(30, fields, func(id int64, v []driver.Value) error {
				for i := range v {
					v[i] = driver.Value{Bytes: make([]byte, 12), Codec: driver.CodecRaw, Width: 2, Height: 2, Channels: 3}
					v[i].Bytes[0] = byte(id) + byte(100*i)
				}
				return nil
			}).Copied()
		},
		Wrap: func(t testing.TB, base driver.Source) driver.Source {
			s, err := Open(base.(Base), 2, func(*driver.FieldStats, *driver.FieldStats, bool) {})
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
		Lacks: map[string]string{
			"Epochs": "the number of the variant takes the place of the epoch",
			"Pather": "packs keep paths as extras of a record",
			"Cutter": "crops need the number of the epoch",
		},
	})
}

package cdec

import (
	"testing"
	"time"

	"github.com/stokerdata/stoker/internal/imagefile"
)

// BenchmarkDCT compares three methods for the same RandomResizedCrop boxes of the same photographs on one core. They
// are decoding the whole JPEG and resizing, decoding the part that the box needs, and the dct codec. The three take
// turns, so that other load on the machine affects all of them. Times are processor time.
func BenchmarkDCT(b *testing.B) {
	jpegs := photoJobs(b, 200)
	dcts := make([]Job, len(jpegs))
	whole := make([]Job, len(jpegs))
	var before, after, blocks int64
	var encode time.Duration
	for i, j := range jpegs {
		start := cpuNow(b)
		src, err := encodeDCT(nil, j.Src)
		if err != nil {
			b.Fatal(err)
		}
		encode += cpuNow(b) - start
		before += int64(len(j.Src))
		after += int64(len(src))
		n, err := CheckDCT(src)
		if err != nil {
			b.Fatal(err)
		}
		blocks += n
		var record Buffer
		b.Cleanup(record.Free)
		p, err := record.Bytes(len(src))
		if err != nil {
			b.Fatal(err)
		}
		copy(p, src)
		dcts[i] = j
		dcts[i].Format, dcts[i].Src = FormatDCT, p
		info, err := DCTInfo(src)
		if err != nil {
			b.Fatal(err)
		}
		whole[i] = dcts[i]
		whole[i].Geom = resizeTo(info.Width, info.Height, 224, 224, j.Geom.Filter)
	}
	d := newDecoder(b)
	var pix Buffer
	defer pix.Free()
	full := func() {
		for _, j := range jpegs {
			info, _ := imagefile.Probe(j.Src)
			p, err := pix.Bytes(int(info.Width) * int(info.Height) * 3)
			if err != nil {
				b.Fatal(err)
			}
			if _, _, err := d.DecodeFull(j.Src, p); err != nil {
				b.Fatal(err)
			}
			j.Format, j.Src, j.Width, j.Height = FormatRGB, p, info.Width, info.Height
			d.run([]Job{j})
		}
	}
	run := func(jobs []Job) func() {
		return func() {
			for i := 0; i < len(jobs); i += 16 {
				d.Run(jobs[i:min(i+16, len(jobs))])
			}
			for i := range jobs {
				if jobs[i].Err != nil {
					b.Fatal(jobs[i].Err)
				}
			}
		}
	}
	unpack := func() {
		for i := range dcts {
			if _, err := CheckDCT(dcts[i].Src); err != nil {
				b.Fatal(err)
			}
		}
	}
	for _, name := range kernelSets() {
		b.Run(name, func(b *testing.B) {
			was := Kernels()
			defer SetKernels(was)
			if err := SetKernels(name); err != nil {
				b.Fatal(err)
			}
			steps := []func(){full, run(jpegs), run(dcts), run(whole), unpack}
			spent := make([]time.Duration, len(steps))
			for range b.N {
				for i, step := range steps {
					start := cpuNow(b)
					step()
					spent[i] += cpuNow(b) - start
				}
			}
			images := float64(b.N * len(jpegs))
			for i, unit := range []string{"full-us", "part-us", "dct-us", "dct-whole-us"} {
				b.ReportMetric(float64(spent[i].Nanoseconds())/1e3/images, unit)
			}
			b.ReportMetric(float64(spent[4].Nanoseconds())/float64(int64(b.N)*blocks), "unpack-ns/block")
			b.ReportMetric(float64(spent[0])/float64(spent[2]), "full/dct")
			b.ReportMetric(float64(spent[1])/float64(spent[2]), "part/dct")
			b.ReportMetric(float64(after)/float64(before), "bytes/jpeg")
			b.ReportMetric(float64(len(jpegs))/encode.Seconds(), "encode/s")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkEncodeDCT makes the dct form of photographs, as packing them does.
func BenchmarkEncodeDCT(b *testing.B) {
	jobs := photoJobs(b, 100)
	for _, name := range kernelSets() {
		b.Run(name, func(b *testing.B) {
			was := Kernels()
			defer SetKernels(was)
			if err := SetKernels(name); err != nil {
				b.Fatal(err)
			}
			e, err := NewDCTEncoder()
			if err != nil {
				b.Fatal(err)
			}
			defer e.Close()
			cpuStart(b)
			for range b.N {
				for i := range jobs {
					if _, err := e.Encode(jobs[i].Src); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(cpuSince(b).Nanoseconds())/1e3/float64(b.N)/float64(len(jobs)), "cpu-us/image")
		})
	}
}

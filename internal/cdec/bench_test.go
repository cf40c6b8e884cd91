package cdec

import (
	"fmt"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/internal/imagefile"
	"github.com/stokerdata/stoker/internal/item"
)

// benchKernels runs f for each kernel set and reports ns per output pixel.
func benchKernels(b *testing.B, f func(b *testing.B) (pixels int)) {
	defer useKernels(kernelSet.Load())
	for _, name := range kernelSets() {
		b.Run(name, func(b *testing.B) {
			if err := SetKernels(name); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			pixels := f(b)
			b.ReportMetric(float64(cpuSince(b).Nanoseconds())/float64(b.N)/float64(pixels), "cpu-ns/px")
		})
	}
}

// Benchmarks also report processor time, which is more meaningful on a busy machine: call cpuStart after the set-up.
var cpuBefore time.Duration

func cpuNow(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func cpuStart(b *testing.B) {
	b.ResetTimer()
	cpuBefore = cpuNow(b)
}

func cpuSince(b *testing.B) time.Duration { return cpuNow(b) - cpuBefore }

// benchJob runs one raw job b.N times.
func benchJob(b *testing.B, job Job) int {
	d := newDecoder(b)
	if job.Src == nil {
		job.Src = noisy(rand.New(rand.NewPCG(1, 1)), int(job.Width)*int(job.Height)*job.pixelBytes())
	}
	job.Dst = make([]byte, outputBytes(&job.Geom, &job.Store))
	jobs := []Job{job}
	d.Run(jobs)
	cpuStart(b)
	for range b.N {
		d.Run(jobs)
	}
	if jobs[0].Err != nil {
		b.Fatal(jobs[0].Err)
	}
	return int(job.Geom.Window.W) * int(job.Geom.Window.H)
}

func resizeTo(w, h, ow, oh int, f item.Filter) item.Geometry {
	g := cut(0, 0, w, h)
	g.Filter, g.ResizeW, g.ResizeH = f, int32(ow), int32(oh)
	g.Window = item.Rect{W: int32(ow), H: int32(oh)}
	return g
}

// BenchmarkResize resizes pixels in memory to 224x224 u8. The pixels are RGBX, like the JPEG decoder's output.
func BenchmarkResize(b *testing.B) {
	for _, filter := range []item.Filter{item.Bilinear, item.Bicubic, item.Nearest} {
		for _, w := range []int{112, 293, 448, 1120} {
			b.Run(fmt.Sprintf("%s/%d", map[item.Filter]string{item.Bilinear: "bilinear", item.Bicubic: "bicubic", item.Nearest: "nearest"}[filter], w), func(b *testing.B) {
				benchKernels(b, func(b *testing.B) int {
					return benchJob(b, Job{Format: FormatRGBX, Width: int32(w), Height: int32(w), Geom: resizeTo(w, w, 224, 224, filter), Store: plainStore})
				})
			})
		}
	}
}

// BenchmarkStore writes 224x224 RGB pixels unchanged, flipped, and in the types and layouts of batches.
func BenchmarkStore(b *testing.B) {
	run := func(name string, g item.Geometry, st item.Store) {
		b.Run(name, func(b *testing.B) {
			benchKernels(b, func(b *testing.B) int {
				return benchJob(b, Job{Format: FormatRGB, Width: 224, Height: 224, Geom: g, Store: st})
			})
		})
	}
	g := cut(0, 0, 224, 224)
	run("u8-nhwc", g, plainStore)
	flipped := g
	flipped.FlipH = true
	run("u8-nhwc-flip", flipped, plainStore)
	planes := plainStore
	planes.Layout = item.NCHW
	run("u8-nchw", g, planes)
	for _, t := range []item.DType{item.F16, item.BF16, item.F32} {
		run(t.String()+"-nhwc", g, normalize(t, item.NHWC, 3))
		run(t.String()+"-nchw", g, normalize(t, item.NCHW, 3))
	}
}

func BenchmarkGather(b *testing.B) {
	for _, n := range []int{3072, 150528} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			defer useKernels(kernelSet.Load())
			for _, name := range kernelSets() {
				b.Run(name, func(b *testing.B) {
					if err := SetKernels(name); err != nil {
						b.Fatal(err)
					}
					const records = 1024
					var from, to Buffer
					defer from.Free()
					defer to.Free()
					src, _ := from.Bytes(records * n)
					dst, _ := to.Bytes(256 * n)
					clear(src)
					clear(dst)
					rng := rand.New(rand.NewPCG(1, 1))
					rows := make([][]byte, 256)
					b.SetBytes(int64(len(dst)))
					b.ReportAllocs()
					b.ResetTimer()
					for range b.N {
						for i := range rows {
							at := rng.IntN(records) * n
							rows[i] = src[at : at+n]
						}
						Gather(dst, rows, n)
					}
				})
			}
		})
	}
}

func BenchmarkCopyCRC32C(b *testing.B) {
	const n, records = 114_321, 2048
	var from, to Buffer
	defer from.Free()
	defer to.Free()
	src, _ := from.Bytes(records * n)
	dst, _ := to.Bytes(256 * n)
	clear(src)
	clear(dst)
	rng := rand.New(rand.NewPCG(1, 1))
	for name, do := range map[string]func(dst, src []byte){
		"copy alone": func(dst, src []byte) { Gather(dst, [][]byte{src}, n) },
		"together":   func(dst, src []byte) { CopyCRC32C(dst, src, 0) },
		"in turn":    func(dst, src []byte) { crc32.Checksum(src, castagnoli); Gather(dst, [][]byte{src}, n) },
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(n)
			for i := range b.N {
				at := rng.IntN(records) * n
				do(dst[i%256*n:][:n], src[at:at+n])
			}
		})
	}
}

// photoJobs makes a RandomResizedCrop of each photograph.
func photoJobs(b *testing.B, most int) []Job {
	rng := rand.New(rand.NewPCG(11, 12))
	var jobs []Job
	for _, file := range photos(b, most) {
		src, err := os.ReadFile(file)
		if err != nil {
			b.Fatal(err)
		}
		info, err := imagefile.Probe(src)
		if err != nil {
			b.Fatal(err)
		}
		g := resizeTo(int(info.Width), int(info.Height), 224, 224, item.Bilinear)
		for range 10 {
			area := float64(info.Width) * float64(info.Height) * (0.08 + 0.92*rng.Float64())
			ratio := math.Exp(math.Log(0.75) + rng.Float64()*(math.Log(4.0/3)-math.Log(0.75)))
			w, h := int32(math.Round(math.Sqrt(area*ratio))), int32(math.Round(math.Sqrt(area/ratio)))
			if w <= info.Width && h <= info.Height {
				g.Box = item.Rect{X: rng.Int32N(info.Width - w + 1), Y: rng.Int32N(info.Height - h + 1), W: w, H: h}
				break
			}
		}
		g.FlipH = rng.IntN(2) == 0
		jobs = append(jobs, Job{Format: FormatJPEG, Src: src, Geom: g, Store: plainStore})
	}
	// As in the pipeline, records and batches are outside the Go heap.
	var batch Buffer
	b.Cleanup(batch.Free)
	dst, err := batch.Bytes(224 * 224 * 3 * len(jobs))
	if err != nil {
		b.Fatal(err)
	}
	for i := range jobs {
		var record Buffer
		b.Cleanup(record.Free)
		src, err := record.Bytes(len(jobs[i].Src))
		if err != nil {
			b.Fatal(err)
		}
		copy(src, jobs[i].Src)
		jobs[i].Src = src
	}
	for i := range jobs {
		jobs[i].Dst = dst[i*224*224*3 : (i+1)*224*224*3]
	}
	return jobs
}

// BenchmarkPhotos compares, per image of the same boxes, decoding the whole image and resizing the box with decoding
// only the box. best-us is the mean over the images of their fastest run, which a busy machine disturbs least.
func BenchmarkPhotos(b *testing.B) {
	jobs := photoJobs(b, 100)
	d := newDecoder(b)
	best := make([]time.Duration, len(jobs))
	report := func(b *testing.B) {
		b.ReportMetric(float64(cpuSince(b).Microseconds())/float64(b.N)/float64(len(jobs)), "cpu-us/image")
		sum := time.Duration(0)
		for i := range best {
			sum += best[i]
			best[i] = time.Hour
		}
		b.ReportMetric(float64(sum.Nanoseconds())/1000/float64(len(jobs)), "best-us/image")
	}
	for i := range best {
		best[i] = time.Hour
	}
	b.Run("full", func(b *testing.B) {
		var pix Buffer
		defer pix.Free()
		cpuStart(b)
		for range b.N {
			for i, j := range jobs {
				start := time.Now()
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
				best[i] = min(best[i], time.Since(start))
			}
		}
		report(b)
	})
	box := func(b *testing.B) {
		b.ReportAllocs()
		cpuStart(b)
		for range b.N {
			for i := range jobs {
				start := time.Now()
				d.Run(jobs[i : i+1])
				best[i] = min(best[i], time.Since(start))
			}
		}
		report(b)
	}
	b.Run("box", box)
	// With libjpeg's entropy decoder: a C loop over its crop and skip.
	b.Run("box-libjpeg", func(b *testing.B) {
		d.setPlain(true)
		defer d.setPlain(false)
		box(b)
	})
	b.Run("box-dct", func(b *testing.B) {
		all := jobs
		defer func() { jobs = all }()
		jobs = nil
		for _, j := range all {
			if src, err := encodeDCT(nil, j.Src); err == nil {
				j.Format, j.Src = FormatDCT, src
				jobs = append(jobs, j)
			}
		}
		best = best[:len(jobs)]
		box(b)
	})
}

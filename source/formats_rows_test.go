package source_test

import (
	"archive/zip"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/ipc"

	"github.com/stokerdata/stoker/internal/npy"
	"github.com/stokerdata/stoker/internal/source/formattest"
	"github.com/stokerdata/stoker/internal/source/formattest/arrowtest"
	"github.com/stokerdata/stoker/internal/source/formattest/cifartest"
	"github.com/stokerdata/stoker/internal/source/tfrecordsource"
	"github.com/stokerdata/stoker/internal/video/videotest"
	"github.com/stokerdata/stoker/pack"
	"github.com/stokerdata/stoker/sink"
	"github.com/stokerdata/stoker/sink/sinktest"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/drivertest"
)

// Reasons why a statement does not hold for a row.
const (
	together      = "its files belong together: one bad file makes all of the data bad"
	anyBytes      = "any bytes are a file: a shorter one is another record"
	noPixels      = "its images are not real ones"
	noLabels      = "a file of labels without lines means no objects"
	mayMiss       = "names of classes may be missing"
	openEnd       = "the format does not say where a file ends"
	fromManifest  = "the fingerprint is that of the manifest, which has the checksums of the shards"
	otherPictures = "a pack stores frames of video as other pictures"
	needsName     = "other formats have such files, too: the URL must name the format"
)

// table has a row for each format, and more for variants with other values.
var table = append([]row{
	{
		name: "pack", write: func(t testing.TB) string {
			return makePack(t, makeFolder(t, 24), &pack.Options{Images: pack.ImagesKeep})
		},
		len: 24, fields: "image:image[] label:label[]", want: func(_ testing.TB, id int64) values { return values{"label": []string{"cat", "dog", "zebra"}[id/8]} },
		not: map[string]string{"Changed": fromManifest, "BadFiles": together},
	},
	{
		name: "npy", fields: "bool:array/bool[2 3] float:float[] float16:array/float16[2 3] float32:array/float32[2 3] float64:array/float64[2 3] int:int[] int16:array/int16[2 3] int32:array/int32[2 3] int64:array/int64[2 3] int8:array/int8[2 3] label:int[] uint16:array/uint16[2 3] uint32:array/uint32[2 3] uint64:array/uint64[2 3] uint8:array/uint8[2 3]", write: converted("npy:out", driver.KindArray, driver.KindInt, driver.KindFloat, driver.KindLabel), len: sinktest.Rows,
		want: numbered(driver.KindArray, driver.KindFloat, driver.KindInt, driver.KindLabel), not: whole(""),
	},
	{
		name: "npy/window", write: func(t testing.TB) string {
			b := npy.AppendHeader(nil, driver.Uint16, []int64{607})
			return file(t, "tokens.npy", append(b, formattest.EncodeTokens(formattest.Tokens(607), 2)...))
		}, query: "?window=20", len: 30, fields: "tokens:array/uint16[20]",
		want: func(_ testing.TB, id int64) values {
			return values{"tokens": list(formattest.Tokens(607)[20*id:][:20])}
		}, not: whole(""),
	},
	{
		name: "npz", write: func(t testing.TB) string { return formattest.NPZFolder(t, 12, zip.Store) }, len: 12, fields: "x:array/float32[9 5] y:array/int64[1]",
		checked: true, not: map[string]string{"Values": "TestArrays of npzsource"}, bad: &drivertest.BadFiles{Name: "img_9999.npz", Late: true},
	},
	{
		name: "npz/deflated", write: func(t testing.TB) string { return formattest.NPZFolder(t, 12, zip.Deflate) }, len: 12, fields: "x:array/float32[9 5] y:array/int64[1]",
		checked: true, not: map[string]string{"Values": "TestArrays of npzsource"}, bad: &drivertest.BadFiles{Name: "img_9999.npz", Late: true},
	},
	{
		name: "npz/columns", fields: "bool:array/bool[2 3] uint8:array/uint8[2 3] int8:array/int8[2 3] uint16:array/uint16[2 3] int16:array/int16[2 3] uint32:array/uint32[2 3] int32:array/int32[2 3] uint64:array/uint64[2 3] int64:array/int64[2 3] float16:array/float16[2 3] float32:array/float32[2 3] float64:array/float64[2 3] int:int[] float:float[] label:int[]", write: converted("out.npz", driver.KindArray, driver.KindInt, driver.KindFloat, driver.KindLabel), len: sinktest.Rows,
		want: numbered(driver.KindArray, driver.KindFloat, driver.KindInt, driver.KindLabel), not: whole(""),
	},
	{
		name: "tfrecord", fields: "float:float[] image:image[] int:int[] label:int[] ragged:ragged/float32[] ragged/shape:array/int64[2] text:text[]", write: converted("tfrecord:out", records...), len: sinktest.Rows, checked: true, want: numbered(records...), not: whole(""),
	},
	{
		name: "mds", fields: "float:float[] image:image[] int:int[] label:int[] ragged:ragged/float32[2] text:text[]", write: converted("mds:out", records...), len: sinktest.Rows, want: numbered(records...), not: whole(""),
	},
	{
		name: "mds/zstd", len: 24, fields: "id:int[] png:image[] rows:ragged/uint16[] text:text[]", write: golden("mdssource/testdata/zstd"), not: whole("TestValues of mdssource"),
	},
	{
		name: "mds/splits", len: 24, fields: "any:array/float64[2 2] big:int[] f16:float[] f32:float[] f64:float[] fixed:array/float32[2 3] gray:image[] i16:int[] i32:int[] i64:int[] i8:int[] id:int[] jpeg:image[] label:int[] meta:json[] pil:image[] png:image[] price:text[] raw:bytes[] real:float[] rows:ragged/uint16[] text:text[] typed:ragged/int16[2] u16:int[] u32:int[] u64:int[] u8:int[]", write: golden("mdssource/testdata/all"), query: "?split=train", splits: map[string]int64{"train": 24, "val": 24}, not: whole("TestValues of mdssource"),
	},
	{
		name: "lmdb", len: 40, fields: "key:text[] value:text[]", want: func(t testing.TB, id int64) values { return values{"value": like(driver.KindText)(t, id)["text"]} },
		write: converted("lmdb:out", driver.KindText), not: whole(""),
	},
	{
		name: "lmdb/splits", len: 24, fields: "key:text[] value:image[]", write: golden("lmdbsource/testdata/five.mdb"), query: "?split=png", splits: map[string]int64{"png": 24, "npy": 24, "datum": 24, "raw": 23}, not: whole("TestRecords of lmdbsource"),
	},
	{name: "litdata", len: 24, fields: "jpeg:image[] pil:image[] label:int[] score:float[] text:text[] raw:bytes[] flag:array/bool[] nest.list:ragged/int64[] nest.tensor:array/float32[2 3] nest.line:ragged/int16[] nest.numpy:array/uint8[2 2]", write: golden("litdatasource/testdata/plain"), not: whole("TestValues of litdatasource")},
	{name: "litdata/zstd", len: 24, fields: "label:int[] text:text[] raw:bytes[] nest.list:ragged/int64[] nest.tensor:array/float32[2 3] nest.line:ragged/int16[] nest.numpy:array/uint8[2 2]", write: golden("litdatasource/testdata/chunk"), not: whole("TestValues of litdatasource")},
	{name: "litdata/tokens", len: 24, fields: "data:ragged/int64[]", write: golden("litdatasource/testdata/tokens"), not: whole("TestValues of litdatasource")},
	{name: "lerobot", len: 21, fields: "observation.state:array/float32[3] action:array/float32[2] observation.images.top:frames[1] next.reward:float[] next.done:array/bool[] observation.images.wrist:frames[1] timestamp:float[] frame_index:int[] episode_index:int[] task_index:int[] task:text[]", write: golden("lerobotsource/testdata/v3"), not: whole("TestValues of lerobotsource")},
	{name: "lerobot/v2", len: 21, fields: "observation.state:array/float32[3] action:array/float32[2] observation.images.top:frames[1] next.reward:float[] next.done:array/bool[] observation.images.wrist:frames[1] timestamp:float[] frame_index:int[] episode_index:int[] task_index:int[] task:text[]", write: golden("lerobotsource/testdata/v2"), not: whole("TestValues of lerobotsource")},
	{name: "beton", len: 12, fields: "image:image[] label:int[] weight:float[] blob:bytes[] meta:json[] array:array/float32[2 3] tensor:array/int16[4] pixels:image[]", write: beton, not: whole("TestValues of betonsource")},
	{name: "zarr", len: 24, fields: "big:array/int32[6 4] blosc:array/float64[6 4] dots:array/int32[6 4] gzip:array/int32[6 4] holes:array/float32[2] label:int[] plain:array/float32[6 4] shards:array/int32[6 4] shards_plain:array/int32[6 4] shards_start:array/uint16[6 4] turned:array/int16[6 4] v2_names:array/uint8[6 4]", write: golden("zarrsource/testdata/third.zarr"), not: whole("TestArrays of zarrsource")},
	{name: "zarr/v2", len: 24, fields: "plain:array/float32[5 3]", write: golden("zarrsource/testdata/second.zarr/plain"), not: whole("TestArrays of zarrsource")},
	{name: "energon", len: 20, fields: "image:image[] label:label[] text:text[]", write: golden("energonsource/testdata/prepared"), query: "?split=train", splits: map[string]int64{"train": 20, "val": 4}, not: whole("TestSplits of energonsource")},
	{name: "shar", len: 22, fields: "codes:ragged/int64[2] features:ragged/float32[4] recording:audio[] target:audio[] vector:array/float32[3] id:text[] duration:float[] text:text[] speaker:text[] language:text[] segments:ragged/float64[2] supervisions:json[] snr:float[] quality:float[]", write: golden("sharsource/testdata/whole"), not: whole("TestValues of sharsource")},
	{name: "tar", fields: "image:image[] float:float[] int:int[] label:label[] ragged:ragged/float32[2] text:text[]", write: converted("tar:out", records...), len: sinktest.Rows, want: numbered(records...), not: whole("")},
	{name: "tar/gzip", fields: "image:image[] float:float[] int:int[] label:label[] ragged:ragged/float32[2] text:text[]", write: gzipped(converted("out.tar", records...)), len: sinktest.Rows, want: numbered(records...), not: whole("")},
	{name: "zip", fields: "image:image[] label:label[]", write: zipped(zip.Store), len: 12, checked: true, want: photos, not: whole("")},
	{name: "zip/deflated", fields: "image:image[] label:label[]", write: zipped(zip.Deflate), len: 12, checked: true, want: photos, not: whole("")},
	{
		name: "idx", fields: "image:image[] label:label[]", write: func(t testing.TB) string {
			return drivertest.Folder(t, map[string][]byte{
				"train-images-idx3-ubyte": formattest.IDX(8, 20, 9, 7), "train-labels-idx1-ubyte": formattest.IDXLabels(20, 10),
				"t10k-images-idx3-ubyte.gz": formattest.Gzip(formattest.IDX(8, 12, 9, 7)), "t10k-labels-idx1-ubyte.gz": formattest.Gzip(formattest.IDXLabels(12, 10)),
			})
		}, query: "?split=train", len: 20, want: func(_ testing.TB, id int64) values {
			return values{"image": sinktest.Sum(formattest.IDX(8, 20, 9, 7)[16+63*id:][:63]), "label": fmt.Sprint(id % 10)}
		},
		splits: map[string]int64{"train": 20, "test": 12}, not: whole(""),
	},
	{
		name: "idx/gzip", fields: "data:array/float32[3]", write: func(t testing.TB) string { return file(t, "x.idx.gz", formattest.Gzip(formattest.IDX(13, 20, 3))) }, len: 20,
		not: whole("TestArrays of idxsource"),
	},
	{
		name: "cifar", fields: "image:image[] label:label[]", write: func(t testing.TB) string {
			return drivertest.Folder(t, map[string][]byte{
				"data_batch_1.bin": cifartest.Flat(0, 12, false), "data_batch_2.bin": cifartest.Flat(12, 8, false), "test_batch.bin": cifartest.Flat(0, 5, false),
			})
		}, query: "?split=train", len: 20, want: func(_ testing.TB, id int64) values { return values{"label": fmt.Sprint(id % 10)} },
		splits: map[string]int64{"train": 20, "test": 5}, not: whole(""),
	},
	{
		name: "stl10", fields: "image:image[] label:label[]", write: formattest.STL, len: 22, want: func(_ testing.TB, id int64) values {
			return values{"image": sinktest.Sum(formattest.STLRow(int(id))), "label": strings.Split(formattest.STLClasses, "\n")[id%10]}
		},
		cut: map[string]string{"class_names.txt": mayMiss}, not: whole(""),
	},
	{
		name: "stl10/splits", fields: "image:image[] label:label[]", write: func(t testing.TB) string {
			dir := formattest.STL(t)
			drivertest.Put(t, dir, "test_X.bin", formattest.STLPictures(4))
			drivertest.Put(t, dir, "test_y.bin", formattest.STLLabels(4))
			return dir
		}, query: "?split=test", len: 4, splits: map[string]int64{"train": 22, "test": 4},
		want: func(_ testing.TB, id int64) values {
			return values{"image": sinktest.Sum(formattest.STLRow(int(id))), "label": strings.Split(formattest.STLClasses, "\n")[id%10]}
		},
		cut: map[string]string{"class_names.txt": mayMiss}, not: whole(""),
	},
	{
		name: "mat", fields: "image:image[] label:label[]", write: func(t testing.TB) string {
			return drivertest.Folder(t, map[string][]byte{
				"train_32x32.mat": formattest.MAT(formattest.MATX(22), formattest.MATY(22)),
				"test_32x32.mat":  formattest.MAT(formattest.MATDeflated(t, formattest.MATX(10)), formattest.MATDeflated(t, formattest.MATY(10))),
			})
		}, query: "?split=train", len: 22, splits: map[string]int64{"train": 22, "test": 10},
		want: func(_ testing.TB, id int64) values {
			return values{"image": sinktest.Sum(formattest.MATRow(int(id))), "label": fmt.Sprint((id + 1) % 10)}
		}, not: whole(""),
	},
	{
		name: "npz/splits", fields: "x:array/uint8[2]", write: func(t testing.TB) string {
			x := func(n int) []byte {
				return append(npy.AppendHeader(nil, driver.Uint8, []int64{int64(n), 2}), make([]byte, 2*n)...)
			}
			return file(t, "set.npz", formattest.Zip(t, zip.Store, formattest.Member{Name: "x_train.npy", Body: x(12)}, formattest.Member{Name: "x_test.npy", Body: x(4)}))
		}, query: "?split=train", len: 12, splits: map[string]int64{"train": 12, "test": 4}, want: func(testing.TB, int64) values { return values{"x": "[0 0]"} },
		not: whole(""),
	},
	{
		name: "parquet/splits", fields: "image:image[] label:label[] caption:text[] blob:bytes[] small:int[] score:float[] maybe:float[] ok:array/bool[] box:array/float32[3] grid:array/uint16[3 2] ids:ragged/int32[] gaps:array/float64[3] in.x:int[] in.tags:multilabel[]", write: func(t testing.TB) string {
			dir, one := t.TempDir(), must(os.ReadFile("../internal/source/parquetsource/testdata/snappy.parquet"))
			for _, name := range []string{"train-00000-of-00002", "train-00001-of-00002", "test-00000-of-00001"} {
				drivertest.Put(t, dir, "data/"+name+".parquet", one)
			}
			return dir
		}, query: "?split=train", len: 80, splits: map[string]int64{"train": 80, "test": 40}, not: whole("TestValues of parquetsource"),
	},
	{
		name: "hdf5/splits", len: 20, fields: "image:array/uint8[4 5 3] label:int[]", write: golden("hdf5source/testdata/splits.h5"), query: "?split=test", splits: map[string]int64{"train": 24, "test": 20},
		not: whole("TestSplitsAndColumns of hdf5source"),
	},
	{
		name: "zarr/splits", len: 24, fields: "plain:array/float32[6 4]", write: func(t testing.TB) string {
			dir, plain := t.TempDir(), golden("zarrsource/testdata/third.zarr/plain")(t)
			for _, split := range []string{"train", "val"} {
				if err := os.CopyFS(filepath.Join(dir, "x.zarr", split, "plain"), os.DirFS(plain)); err != nil {
					t.Fatal(err)
				}
				drivertest.Put(t, dir, "x.zarr/"+split+"/zarr.json", must(os.ReadFile("../internal/source/zarrsource/testdata/third.zarr/zarr.json")))
			}
			drivertest.Put(t, dir, "x.zarr/zarr.json", must(os.ReadFile("../internal/source/zarrsource/testdata/third.zarr/zarr.json")))
			return filepath.Join(dir, "x.zarr")
		}, query: "?split=val", splits: map[string]int64{"train": 24, "val": 24}, not: whole("TestArrays of zarrsource"),
	},
	{name: "parquet", fields: "image:image[] label:label[] int:int[] text:text[] float:float[] ragged:ragged/float32[2]", write: converted("parquet:out", records...), len: sinktest.Rows, want: like(records...), not: whole("")},
	{name: "hdf5", fields: "float:float[] image:image[] int:int[] label:int[] ragged:ragged/float32[] text:text[]", write: converted("out.h5", records...), len: sinktest.Rows, want: numbered(records...), not: whole("")},
	{name: "arrow", fields: "image:image[] label:label[] int:int[] text:text[] float:float[] ragged:ragged/float32[2]", write: converted("arrow:out", records...), len: sinktest.Rows, want: like(records...), not: whole("")},
	{
		name: "pairs", fields: "image:image[] mask:mask/uint8[] caption:text[] file:bytes[]", write: pairs, query: "?image=images/*&mask=masks/*_seg.png&caption=texts/*.txt&file:bytes=texts/*.txt", len: 12,
		want: func(_ testing.TB, id int64) values {
			text := fmt.Sprintf("text %d", id)
			return values{"caption": text, "file": sinktest.Sum([]byte(text))}
		}, cut: map[string]string{"texts/11.txt": anyBytes}, not: map[string]string{"Found": needsName, "BadFiles": "TestBadFiles of pairsource: a bad file must have partners"},
	},
	{
		name: "nifti", fields: "volume:volume/int16[7 8 9] affine:array/float32[4 4]", write: func(t testing.TB) string { return formattest.Numbered(t, 12, formattest.MixedNIfTI) }, len: 12,
		not: map[string]string{"Values": "TestWhole of volumesource"}, bad: &drivertest.BadFiles{Name: "99.nii", Late: true},
	},
	{
		name: "nifti/patches", len: 81, fields: "volume:volume/int16[3 4 5] affine:array/float32[4 4] origin:array/int64[3]", write: func(t testing.TB) string { return formattest.Numbered(t, 3, formattest.MixedNIfTI) }, query: "?patch=3x4x5&stride=3x3x3",
		not: map[string]string{"Values": "TestPatches of volumesource", "BadFiles": "TestBadFile of volumesource"},
	},
	{
		name: "volumes", fields: "volume:volume/uint8[3 4 5]", write: func(t testing.TB) string {
			return formattest.Numbered(t, 12, func(i int) (string, []byte) {
				return ".npy", append(npy.AppendHeader(nil, driver.Uint8, []int64{3, 4, 5}), bytes.Repeat([]byte{byte(i)}, 60)...)
			})
		}, len: 12, want: func(_ testing.TB, id int64) values { return values{"volume": list(slices.Repeat([]int{int(id)}, 60))} }, bad: &drivertest.BadFiles{Name: "99.npy", Late: true}, not: map[string]string{"Found": needsName},
	},
	{
		name: "dicom", fields: "volume:volume/uint16[7 8 9] affine:array/float32[4 4]", write: func(t testing.TB) string { return formattest.Volumes(t)["explicit"] }, len: 5,
		not: map[string]string{"Values": "TestForms of volumesource", "BadFiles": "TestBadSlices of volumesource: a record is a folder"},
	},
	{
		name: "volumes/tiff", fields: "volume:volume/uint16[7 8 9]", write: func(t testing.TB) string { return formattest.Volumes(t)["strips"] }, len: 5,
		not: map[string]string{"Found": needsName, "Values": "TestForms of volumesource"}, bad: &drivertest.BadFiles{Name: "99.tif", Late: true},
	},
	{
		name: "ply", fields: "points:ragged/float32[3] colors:ragged/uint8[3]", write: func(t testing.TB) string {
			return formattest.Clouds(t, "ply", func(i int) []byte { return formattest.PLY(formattest.PLYForms[i%3], i*3) })
		}, len: 12, not: map[string]string{"Values": "TestValues of pointsource"}, bad: &drivertest.BadFiles{Name: "b/zz.ply", Late: true},
	},
	{
		name: "kitti", fields: "points:ragged/float32[4]", write: func(t testing.TB) string { return formattest.Clouds(t, "kitti", formattest.KITTI) }, len: 12,
		not: map[string]string{"Found": "the folders of its files have no name of KITTI", "Values": "TestValues of pointsource"}, bad: &drivertest.BadFiles{Name: "b/zz.bin", Opaque: true},
	},
	{
		name: "megatron", fields: "tokens:tokens/uint32[]", write: func(t testing.TB) string { return drivertest.Folder(t, formattest.Megatron(4, 4)) }, len: 25,
		not: whole("TestMegatron of tokensource"),
	},
	{name: "tokens", len: 45, fields: "tokens:tokens/uint16[]", write: formattest.TokenShards, query: "?eot=7", cut: map[string]string{"a.bin": openEnd}, not: map[string]string{"Found": needsName, "BadFiles": together, "Values": "TestRecords of tokensource"}},
	{name: "tokens/windows", fields: "tokens:array/uint16[10]", write: formattest.TokenShards, query: "?window=10", len: 29, cut: map[string]string{"a.bin": openEnd}, not: map[string]string{"Found": needsName, "BadFiles": together, "Values": "TestRecords of tokensource"}},
	{name: "coco", fields: "image:image[] boxes:boxes/float32[4] labels:multilabel[] iscrowd:ragged/uint8[] area:ragged/float32[] keypoints:keypoints/float32[3 2] visibility:ragged/uint8[3] image_id:int[]", write: formattest.COCO, len: formattest.COCOImages, splits: map[string]int64{"val": formattest.COCOImages}, not: whole("TestRecords of cocosource")},
	{name: "voc", fields: "image:image[] boxes:boxes/float32[4] labels:multilabel[] difficult:ragged/uint8[] truncated:ragged/uint8[]", write: formattest.VOC, len: formattest.VOCImages, splits: map[string]int64{"train": 8}, not: map[string]string{"BadFiles": "TestBadFiles of vocsource: the folders must be there", "Values": "TestRecords of vocsource"}},
	{name: "yolo", fields: "image:image[] boxes:boxes/float32[4] labels:multilabel[]", write: formattest.YOLO, len: formattest.YOLOImages, cut: map[string]string{"labels/train/22.txt": noLabels}, not: map[string]string{"BadFiles": "TestBadLabels of yolosource: an image belongs to its labels", "Values": "TestRecords of yolosource"}},
	{
		name: "yolo/splits", fields: "image:image[] boxes:boxes/float32[4] labels:multilabel[]", write: func(t testing.TB) string {
			dir := formattest.YOLO(t)
			for i := range 5 {
				drivertest.Put(t, dir, fmt.Sprintf("images/val/%d.png", i), formattest.Gray(t, 20, 16, i))
				drivertest.Put(t, dir, fmt.Sprintf("labels/val/%d.txt", i), []byte(formattest.YOLOLabels(i)))
			}
			drivertest.Put(t, dir, "data.yaml", []byte("train: images/train\nval: images/val\nnames: [a, b, c]\n"))
			return dir
		}, query: "?split=val", len: 5, splits: map[string]int64{"train": formattest.YOLOImages, "val": 5}, cut: map[string]string{"labels/train/22.txt": noLabels, "labels/val/4.txt": noLabels}, not: map[string]string{"BadFiles": "TestBadLabels of yolosource: an image belongs to its labels", "Values": "TestRecords of yolosource"},
	},
	{
		name: "flo", fields: "flow:array/float32[3 5 2]", write: func(t testing.TB) string { return formattest.Maps(t, "flo", formattest.Flows) }, len: 12,
		not: map[string]string{"Values": "TestValues of flowsource"}, bad: &drivertest.BadFiles{Name: "b/zz.flo", Late: true},
	},
	{
		name: "pfm", fields: "data:array/float32[3 5 3]", write: func(t testing.TB) string {
			return formattest.Maps(t, "pfm", func(i int) []byte { return formattest.PFM("PF", 5, 3, i%2 == 0, formattest.FlowNumbers(i, 45)) })
		}, len: 12, not: map[string]string{"Values": "TestValues of flowsource"}, bad: &drivertest.BadFiles{Name: "b/zz.pfm", Late: true},
	},
	{name: "csv", fields: "label:text[] int:int[] text:text[] float:float[]", write: converted("csv:out", numbers...), len: sinktest.Rows, want: like(numbers...), not: whole("")},
	{name: "tsv", fields: "label:text[] int:int[] text:text[] float:float[]", write: converted("tsv:out", numbers...), len: sinktest.Rows, want: like(numbers...), not: whole("")},
	{name: "jsonl", fields: "label:text[] int:int[] text:text[] float:float[]", write: converted("jsonl:out", numbers...), len: sinktest.Rows, want: like(numbers...), not: whole("")},
	{
		name: "files", fields: "data:bytes[]", write: tree(".bin", content), len: 12, want: func(_ testing.TB, id int64) values { return values{"data": sinktest.Sum(content(nil, int(id)))} },
		bad: &drivertest.BadFiles{Name: "b/zz.bin", Opaque: true}, not: map[string]string{"Found": needsName, "Damaged": anyBytes},
	},
	{name: "audio", fields: "audio:audio[] label:label[]", write: tree(".wav", sound), len: 12, bad: &drivertest.BadFiles{Name: "b/zz.wav", Opaque: true}, want: func(_ testing.TB, id int64) values {
		return values{"audio": sinktest.Sum(sound(nil, int(id))), "label": class(id)}
	}},
	{name: "video", len: 11, fields: "frames:frames[3] label:label[]", write: func(t testing.TB) string { return videotest.Folder(t, 6) }, query: "?frames=3&stride=2", not: map[string]string{"Packed": otherPictures, "Damaged": openEnd, "Values": "TestClips of videosource", "BadFiles": "TestBadFiles of videosource"}},
	{
		name: "video/splits", len: 14, fields: "frames:frames[3] label:label[]", write: inSplits(func(t testing.TB) string { return videotest.Folder(t, 4) }), query: "?split=train&frames=3", splits: map[string]int64{"train": 4, "val": 4},
		not: map[string]string{"Packed": otherPictures, "Damaged": openEnd, "Values": "TestClips of videosource", "BadFiles": "TestBadFiles of videosource"},
	},
	{
		name: "folder/splits", fields: "image:image[] label:label[]", write: inSplits(tree(".jpg", photo)), query: "?split=val", len: 12, splits: map[string]int64{"train": 12, "val": 12}, want: photos,
		not: map[string]string{"BadFiles": "as without splits, with paths below the split"},
	},
	{
		name: "audio/splits", fields: "audio:audio[] label:label[]", write: inSplits(tree(".wav", sound)), query: "?split=val", len: 12, splits: map[string]int64{"train": 12, "val": 12},
		want: func(_ testing.TB, id int64) values { return values{"label": class(id)} }, not: map[string]string{"BadFiles": "as without splits, with paths below the split"},
	},
	{name: "folder", fields: "image:image[] label:label[]", write: tree(".jpg", photo), len: 12, want: photos, bad: &drivertest.BadFiles{Name: "b/zz.jpg", Opaque: true}},
}, variants()...)

// variants are further rows of formats, whose values are tested with the format itself.
func variants() (rows []row) {
	add := func(name, values string, write func(t testing.TB) string, query string, n int64) *row {
		rows = append(rows, row{name: name, write: write, query: query, len: n, not: whole(values)})
		return &rows[len(rows)-1]
	}
	for _, o := range []*pack.Options{
		{Images: pack.ImagesAuto}, {Images: pack.ImagesRaw, ChunkBytes: 64 << 10, ShardBytes: 128 << 10},
		{Images: pack.ImagesRaw, Resize: pack.Resize{Width: 16, Height: 24}, ChunkBytes: 64 << 10, ShardBytes: 64 << 10},
	} {
		write := func(t testing.TB) string { return makePack(t, makeFolder(t, 100), o) }
		r := add("pack/"+o.Images+o.Resize.String(), "TestPackEqualsFolder", write, "", 100)
		r.not["Changed"], r.not["Packed"] = fromManifest, "a pack of pixels has other files"
	}
	others := "TestValues of parquetsource"
	for _, name := range []string{"snappy", "stored", "gzip", "zstd", "lz4", "pieces", "delta", "polars"} {
		add("parquet/"+name, others, golden("parquetsource/testdata/"+name+".parquet"), "", 40)
	}
	const otherKinds = "?l:int=label&s:float=small&t:tokens=ids&m:multilabel=ids&g:ragged=grid&*"
	add("parquet/kinds", others, golden("parquetsource/testdata/pieces.parquet"), otherKinds+"&raw:bytes=image", 40)
	others = "TestValues of arrowsource"
	add("arrow/saved", others, arrowtest.Saved, "", 41)
	add("arrow/kinds", others, arrowtest.Saved, otherKinds, 41)
	add("arrow/file", others, arrowFile(false), "", 44)
	add("arrow/zstd", others, arrowFile(false, ipc.WithZstd()), "", 44)
	add("arrow/lz4", others, arrowFile(true, ipc.WithLZ4()), "", 44)
	for _, name := range []string{"10 binary", "100 binary"} {
		r := add("cifar/"+name, "TestRecords of cifarsource", func(t testing.TB) string { return cifartest.Folders(t)[name] }, "", 25)
		r.cut = map[string]string{"batches.meta.txt": mayMiss, "coarse_label_names.txt": mayMiss, "fine_label_names.txt": mayMiss}
	}
	for _, of := range []string{"10", "100"} {
		for _, how := range []string{"0 of Python 2", "2 of Python 2", "0 of Python 3", "2 of Python 3", "3 of Python 3"} {
			name := of + " protocol " + how
			add("cifar/"+name, "TestRecords of cifarsource", func(t testing.TB) string { return cifartest.Folders(t)[name] }, "", 25)
		}
	}
	for i, kind := range []byte{8, 9, 11, 12, 13, 14} {
		for k, shape := range [][]int{{25}, {25, 3}, {25, 2, 3, 2}} {
			name := fmt.Sprintf("idx/%d axes of type %d", len(shape), kind)
			add(name, "TestArrays of idxsource", func(t testing.TB) string {
				if b := formattest.IDX(kind, shape...); (i+k)%2 == 0 {
					return file(t, "x.idx", b)
				} else {
					return file(t, "x.idx.gz", formattest.Gzip(b))
				}
			}, "", 25)
		}
	}
	add("npz/deflated columns", "TestLayouts of npzsource", func(t testing.TB) string {
		columns := []formattest.Member{{Name: "image.npy", Body: npy.AppendHeader(nil, driver.Uint8, []int64{25, 6, 5})}, {Name: "label.npy", Body: npy.AppendHeader(nil, driver.Int32, []int64{25})}}
		for i, n := range []int{750, 100} {
			for k := range n {
				columns[i].Body = append(columns[i].Body, byte(k+i))
			}
		}
		return file(t, "set.npz", formattest.Zip(t, zip.Deflate, columns...))
	}, "", 25).checked = true
	for name, method := range map[string]uint16{"second": zip.Store, "third": zip.Deflate} {
		add("zarr/zip of "+name, "TestZip of zarrsource", func(t testing.TB) string {
			dir, members := "../internal/source/zarrsource/testdata/"+name+".zarr", []formattest.Member(nil)
			for _, f := range files(t, dir) {
				members = append(members, formattest.Member{Name: f, Body: must(os.ReadFile(filepath.Join(dir, f)))})
			}
			return file(t, "data.zip", formattest.Zip(t, method, members...))
		}, "", 24)
	}
	add("hdf5/named pairs", "TestNamedPairs of hdf5source", golden("hdf5source/testdata/pairs_latest.h5"), "?x=events.x@starts&text:text=words&tokens:tokens=tokens_values", 30)
	several := add("hdf5/several", "", twice("hdf5source/testdata/pairs_earliest.h5", "a.h5", "b.hdf5"), "", 60)
	several.want = func(_ testing.TB, id int64) values { return values{"label": fmt.Sprint(id % 30 % 10)} }
	add("hdf5/several layouts", "TestSeveralFiles of hdf5source", twice("hdf5source/testdata/layouts_latest.h5", "a.h5", "b.hdf5"), "?rows&growing_both&one_chunk_gzip", 60)
	add("shar/parts", "TestValues of sharsource", func(t testing.TB) string {
		dir := golden("sharsource/testdata/whole")(t)
		for _, name := range files(t, "../internal/source/sharsource/testdata/parts") { // other cuts of the same values
			drivertest.Put(t, dir, name, must(os.ReadFile("../internal/source/sharsource/testdata/parts/"+name)))
		}
		return dir
	}, "", 22)
	for _, query := range []string{"text&raw:bytes=recording&recording&speaker:label=speaker", "target", "id"} {
		add("shar/?"+query, "TestValues of sharsource", golden("sharsource/testdata/whole"), "?"+query, 22)
	}
	add("npy/numbers", "TestRows of npysource", func(t testing.TB) string {
		return file(t, "x.npy", append(npy.AppendHeader(nil, driver.Uint16, []int64{300}), make([]byte, 600)...))
	}, "", 300)
	add("mds/gz", "TestValues of mdssource", golden("mdssource/testdata/gz"), "", 24)
	add("lmdb/plain", "TestRecords of lmdbsource", golden("lmdbsource/testdata/plain.mdb"), "", 24)
	for name, n := range map[string]int64{"npy": 24, "datum": 24, "raw": 23} {
		add("lmdb/"+name, "TestRecords of lmdbsource", golden("lmdbsource/testdata/five.mdb"), "?split="+name, n)
	}
	for _, name := range []string{"batch", "sample", "tuples"} {
		add("litdata/"+name, "TestValues of litdatasource", golden("litdatasource/testdata/"+name), "", 24)
	}
	const deltas = "?deltas=action=0:3;observation.images.top=-0.1,0;next.reward=-2:1;next.done=0,0.1"
	add("lerobot/deltas", "TestDeltas of lerobotsource", golden("lerobotsource/testdata/v3"), deltas, 21)
	add("lerobot/v2-deltas", "TestDeltas of lerobotsource", golden("lerobotsource/testdata/v2"), deltas, 21)
	for _, name := range []string{"layouts_earliest", "layouts_latest", "kinds_earliest", "kinds_latest", "pairs_earliest", "pairs_latest"} {
		add("hdf5/"+name, "the tests of hdf5source", golden("hdf5source/testdata/"+name+".h5"), "", 30)
	}
	add("hdf5/images", "TestSplitsAndColumns of hdf5source", golden("hdf5source/testdata/splits.h5"), "?split=train&image:image&label:label", 24)
	add("zarr/second", "TestArrays of zarrsource", golden("zarrsource/testdata/second.zarr"), "", 24)
	add("zarr/array", "TestArrays of zarrsource", golden("zarrsource/testdata/third.zarr/shards_plain"), "", 24)
	r := add("tar/shards", "TestSamples of tarsource", func(t testing.TB) string { return formattest.TarShards(t, 2) }, "", 20)
	r.not["Packed"], r.not["Loaded"] = noPixels, noPixels
	for _, n := range []int{2, 5} {
		r := add(fmt.Sprintf("tar/%d compressed", n), "TestOrderedRecords of tarsource", func(t testing.TB) string { return formattest.Compressed(t, formattest.TarShards(t, n)) }, "", 10*int64(n))
		if r.not["Packed"], r.not["Loaded"] = noPixels, noPixels; n == 5 {
			r.not["Faults"] = "a read that hangs may be one ahead, of a shard that no record needs"
		}
	}
	for _, name := range []string{"examples.tfrecord", "examples.tfrecord.gz", "sequences.tfrecord"} {
		add("tfrecord/"+name, "TestExamples of tfrecordsource", golden("tfrecordsource/testdata/"+name), "", 24).checked = true
	}
	const chosen = "?image=image/encoded&label:label=image/class/text&n:int=image/class/label&tokens:tokens&pair:ragged&raw:bytes&again:bytes=raw&score&box:array&*"
	add("tfrecord/chosen", "TestExamples of tfrecordsource", golden("tfrecordsource/testdata/examples.tfrecord"), chosen, 24).checked = true
	add("tfrecord/sizes", "TestRecords of tfrecordsource", tfrecords, "", 60).checked = true
	add("tfrecord/compressed", "TestOrderedRecords of tfrecordsource", func(t testing.TB) string { return formattest.Compressed(t, tfrecords(t)) }, "", 60).checked = true
	add("stl10/unlabeled", "TestRecords of stlsource", func(t testing.TB) string {
		return drivertest.Folder(t, map[string][]byte{"unlabeled_X.bin": formattest.STLPictures(20)})
	}, "", 20)
	add("mat/mixed", "TestRecords of matsource", func(t testing.TB) string { return formattest.MATFolders(t)["mixed"] }, "", 22)
	add("mat/gray", "TestRecords of matsource", func(t testing.TB) string {
		return file(t, "a.mat", formattest.MAT(formattest.MATMatrix("X", 9, 2, formattest.MATPictures(20, 35), 5, 7, 1, 20),
			formattest.MATMatrix("y", 10, 3, make([]byte, 40), 1, 20)))
	}, "", 20)
	for _, name := range []string{"big", "tiles", "packed"} {
		r := add("volumes/"+name, "TestForms of volumesource", func(t testing.TB) string { return formattest.Volumes(t)[name] }, "", 5)
		r.not["Found"], r.bad = needsName, &drivertest.BadFiles{Name: "99.tif", Late: true}
		delete(r.not, "BadFiles")
	}
	for _, name := range []string{"implicit", "rle", "lossless", "pieces"} {
		add("dicom/"+name, "TestForms of volumesource", func(t testing.TB) string { return formattest.Volumes(t)[name] }, "", 5)
	}
	add("nifti/scaled", "TestWhole of volumesource", func(t testing.TB) string {
		return formattest.Numbered(t, 12, func(i int) (string, []byte) {
			return ".nii", formattest.NIfTI(binary.LittleEndian, float32(i%2)*0.5, i, 4, 5, 6)
		})
	}, "", 12)
	for _, masks := range []string{"classes", "instances", "stack"} {
		add("coco/"+masks, "TestRecords of cocosource", formattest.COCO, "?masks="+masks, formattest.COCOImages)
		if masks != "stack" { // TestStacks of vocsource has masks for it
			add("voc/"+masks, "TestSplitsAndMasks of vocsource", formattest.VOC, "?masks="+masks, formattest.VOCImages/2)
		}
		r := add("yolo/"+masks, "TestRecords of yolosource", formattest.YOLO, "?masks="+masks, formattest.YOLOImages)
		r.cut = map[string]string{"labels/train/22.txt": noLabels}
		r.not["Faults"] = "a mask has the sides of its image: a damaged header asks for more memory than the test has"
	}
	for _, name := range []string{"csv", "tsv", "jsonl"} {
		for i, query := range []string{"", "?class:label&*", "?n&caption"} {
			r := add(name+"/files"+strings.Repeat("+", i), "TestTables of tablesource", func(t testing.TB) string { return formattest.Tables(t, name) }, query, 60)
			r.not["Found"] = "a folder with pictures is one of pictures"
		}
	}
	for _, v := range []struct {
		name, query string
		records     int64
	}{{"images", "?as=images&fps=7", 50}, {"random", "?frames=3&step=2&start=random", 33}, {"times", "?frames=2&fps=7", 23}} {
		r := add("video/"+v.name, "TestClips of videosource", func(t testing.TB) string { return videotest.Folder(t, 6) }, v.query, v.records)
		r.not["Damaged"], r.not["Packed"] = openEnd, otherPictures
	}
	return rows
}

// whole are the reasons for a row whose files belong together. values is the test that knows its values, if the row has
// none.
func whole(values string) map[string]string {
	not := map[string]string{"BadFiles": together}
	if values != "" {
		not["Values"] = values
	}
	return not
}

var (
	// records are kinds of fields that formats of records have, numbers those that tables of text have.
	records = []driver.Kind{driver.KindImage, driver.KindLabel, driver.KindInt, driver.KindText, driver.KindFloat, driver.KindRagged}
	numbers = []driver.Kind{driver.KindLabel, driver.KindInt, driver.KindText, driver.KindFloat}
)

// converted writes the dataset of package sinktest with the sink of a format.
func converted(target string, kinds ...driver.Kind) func(t testing.TB) string {
	return func(t testing.TB) string {
		t.Helper()
		name, base, ok := strings.Cut(target, ":")
		if !ok {
			name, base = "", target
		}
		path := filepath.Join(t.TempDir(), base)
		to, err := sink.ParseTarget(path, name)
		if err == nil {
			_, err = sink.Write(t.Context(), sinktest.Source(t, kinds...), to, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
}

// like returns the values of the dataset of package sinktest.
func like(kinds ...driver.Kind) func(t testing.TB, id int64) values {
	return func(t testing.TB, id int64) values {
		s := sinktest.Source(t, kinds...)
		out := values{}
		for i, text := range texts(s, &drivertest.Records(t, s, id)[0]) {
			out[s.Info().Fields[i].Name] = text
		}
		return out
	}
}

// numbered is like, with the numbers of classes, of which the format has no names.
func numbered(kinds ...driver.Kind) func(t testing.TB, id int64) values {
	return func(t testing.TB, id int64) values {
		out := like(kinds...)(t, id)
		out["label"] = fmt.Sprint(slices.Index(sinktest.Classes, out["label"]))
		return out
	}
}

// golden copies a dataset that another library has written.
func golden(path string) func(t testing.TB) string {
	return func(t testing.TB) string {
		t.Helper()
		from := filepath.Join("../internal/source", path)
		to := filepath.Join(t.TempDir(), filepath.Base(path))
		var err error
		if info, e := os.Stat(from); e == nil && info.IsDir() {
			err = os.CopyFS(to, os.DirFS(from))
		} else {
			err = os.WriteFile(to, must(os.ReadFile(from)), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		return to
	}
}

func beton(t testing.TB) string {
	z := must(gzip.NewReader(bytes.NewReader(must(os.ReadFile("../internal/source/betonsource/testdata/all.beton.gz")))))
	return file(t, "all.beton", must(io.ReadAll(z)))
}

// twice returns a folder with a file under two names.
func twice(path string, names ...string) func(t testing.TB) string {
	return func(t testing.TB) string {
		dir := t.TempDir()
		for _, name := range names {
			drivertest.Put(t, dir, name, must(os.ReadFile(filepath.Join("../internal/source", path))))
		}
		return dir
	}
}

// arrowFile writes a file or a stream of Arrow with the library of the Arrow project.
func arrowFile(stream bool, how ...ipc.Option) func(t testing.TB) string {
	return func(t testing.TB) string {
		return file(t, "x.arrow", arrowtest.Table(t, stream, arrowtest.Fields, "", []string{arrowtest.Rows(0, 30), arrowtest.Rows(30, 44)}, how...))
	}
}

// tfrecords writes five files of records of many sizes.
func tfrecords(t testing.TB) string {
	const piece = 256 << 10
	dir := t.TempDir()
	for f := range 5 {
		var b []byte
		for i, size := range []int{0, 1, 100, 40_000, 5, piece - 1, piece, piece + 1, 3*piece + 7, 0, 12, 70_000} {
			body := make([]byte, size)
			for k := range body {
				body[k] = byte(k*k/7 + 31*i + f)
			}
			b = tfrecordsource.AppendRecord(b, body)
		}
		drivertest.Put(t, dir, fmt.Sprintf("train.tfrecord-%05d-of-00005", f), b)
	}
	return dir
}

// gzipped compresses the file that another function writes.
func gzipped(write func(t testing.TB) string) func(t testing.TB) string {
	return func(t testing.TB) string {
		path := write(t)
		return file(t, filepath.Base(path)+".gz", formattest.Gzip(must(os.ReadFile(path))))
	}
}

func file(t testing.TB, name string, b []byte) string {
	drivertest.Put(t, t.TempDir(), name, nil) // for the message of a folder that cannot be written
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// The records of a folder with classes.

func class(id int64) string { return string(rune('a' + id/4)) }

func content(_ testing.TB, i int) []byte { return bytes.Repeat([]byte{'R', byte(i)}, 1+i*i*7) }

func sound(_ testing.TB, i int) []byte {
	return formattest.WAV(slices.Repeat([]int16{int16(i), 100}, 40+i)...)
}

func photo(t testing.TB, i int) []byte { return formattest.Photo(t, 20+i%7, 16, i) }

func photos(t testing.TB, id int64) values {
	return values{"image": sinktest.Sum(photo(t, int(id))), "label": class(id)}
}

// tree writes 12 files in three folders.
func tree(ext string, file func(t testing.TB, i int) []byte) func(t testing.TB) string {
	return func(t testing.TB) string {
		files := map[string][]byte{}
		for i := range 12 {
			files[fmt.Sprintf("%s/%02d%s", class(int64(i)), i, ext)] = file(t, i)
		}
		return drivertest.Folder(t, files)
	}
}

// inSplits writes a dataset as train, and again as val.
func inSplits(write func(t testing.TB) string) func(t testing.TB) string {
	return func(t testing.TB) string {
		dir := t.TempDir()
		for _, split := range []string{"train", "val"} {
			if err := os.CopyFS(filepath.Join(dir, split), os.DirFS(write(t))); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
}

// pairs writes images with masks and texts, and some files without partners.
func pairs(t testing.TB) string {
	files := map[string][]byte{"images/alone.png": formattest.Black(t, 9), "masks/unrelated.png": nil}
	for i := range 12 {
		files[fmt.Sprintf("images/%02d.png", i)] = formattest.Gray(t, 5, 1+i, i)
		files[fmt.Sprintf("masks/%02d_seg.png", i)] = formattest.Gray(t, 5, 1+i, 0)
		files[fmt.Sprintf("texts/%02d.txt", i)] = fmt.Appendf(nil, "text %d", i)
	}
	return drivertest.Folder(t, files)
}

// zipped writes the photos of a folder into a zip file.
func zipped(method uint16) func(t testing.TB) string {
	return func(t testing.TB) string {
		var members []formattest.Member
		for i := range 12 {
			members = append(members, formattest.Member{Name: fmt.Sprintf("%s/%02d.jpg", class(int64(i)), i), Body: photo(t, i)})
		}
		return file(t, "x.zip", formattest.Zip(t, method, members...))
	}
}

// list returns numbers as text does.
func list(v []int) string { return fmt.Sprint(v) }

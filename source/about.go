package source

// About is what people are told of a format: by `stoker formats`, and by
// docs/formats.md, which is made of that.
type About struct {
	// Name is the format, as it may stand in front of a path.
	Name string `json:"name"`
	// Reads says which files it takes.
	Reads string `json:"reads"`
	// Random says whether records are read at random, or which ones are not.
	Random string `json:"random"`
	// Example is a URL.
	Example string `json:"example"`
	// Splits, Columns, Patterns and Window say what a URL may have beside the path.
	Splits   bool `json:"splits"`
	Columns  bool `json:"columns"`
	Patterns bool `json:"patterns"`
	Window   bool `json:"window"`
}

// atRandom is for formats all of whose files are read at random.
const atRandom = "yes"

// told has a line for each format; a test holds it equal with formats.
var told = map[string]About{
	"pack":       {Reads: "what stoker pack writes", Random: atRandom, Example: "train/"},
	"npy":        {Reads: ".npy files and folders of them; one-dimensional ones in windows, too", Random: atRandom, Example: "tokens.npy?window=1024"},
	"npz":        {Reads: ".npz files and folders of them, stored and deflated", Random: atRandom, Example: "samples/"},
	"tfrecord":   {Reads: "TFRecord files with tf.train.Examples or any bytes, also .gz and .zst", Random: "not .gz and .zst", Example: "train.tfrecord?image:image=image/encoded&label:label=image/class/label"},
	"mds":        {Reads: "shards of MosaicML Streaming (MDS), also compressed with zstd and gz", Random: "not compressed ones", Example: "mds/?split=train"},
	"lmdb":       {Reads: "LMDB databases: images, .npy files, Caffe's Datum, any bytes by key", Random: atRandom, Example: "faces.lmdb/?value:image"},
	"litdata":    {Reads: "chunks of LitData, those of tokens, too, also compressed with zstd", Random: "compressed ones where each item is by itself", Example: "litdata/"},
	"lerobot":    {Reads: "data sets of robots as LeRobot lays them out, versions 2 and 3: Parquet and a video per camera", Random: atRandom, Example: "pusht/?deltas=action=0:16;observation.state=-0.1,0"},
	"beton":      {Reads: "FFCV's .beton files: images as JPEG or pixels, numbers, bytes, JSON, arrays", Random: atRandom, Example: "train.beton"},
	"tar":        {Reads: "tar files, those of webdataset, too, also .tar.gz and .tar.zst", Random: "not .gz and .zst", Example: "shards/train-{0000..0127}.tar"},
	"zip":        {Reads: "zip files, stored and deflated", Random: atRandom, Example: "photos.zip"},
	"idx":        {Reads: "MNIST, EMNIST, KMNIST, Fashion-MNIST: IDX files, also .gz", Random: atRandom, Example: "mnist/?split=train"},
	"cifar":      {Reads: "CIFAR-10 and CIFAR-100, binary and Python's form", Random: atRandom, Example: "cifar-10-batches-py?split=train"},
	"stl10":      {Reads: "STL-10's binary files", Random: atRandom, Example: "stl10_binary?split=train"},
	"mat":        {Reads: "SVHN's cropped digits: MATLAB 5 files", Random: atRandom, Example: "svhn?split=train"},
	"parquet":    {Reads: "Parquet files, and folders of the Hugging Face hub with splits", Random: atRandom, Example: "food101/?split=train"},
	"hdf5":       {Reads: "HDF5 files: data sets with the same first axis are fields, values with offsets beside them rows of any length", Random: atRandom, Example: "x.h5?image:image=/train/x&label:label=/train/y"},
	"zarr":       {Reads: "Zarr arrays and groups in folders, versions 2 and 3: arrays with the same first axis are fields", Random: atRandom, Example: "x.zarr?image:image=train/x&label:label=train/y"},
	"arrow":      {Reads: "Arrow IPC files and streams, and what save_to_disk of datasets writes", Random: atRandom, Example: "saved/train/"},
	"megatron":   {Reads: "Megatron-LM's .bin and .idx files: documents, sequences or windows", Random: atRandom, Example: "corpus_text_document.bin"},
	"tokens":     {Reads: ".bin files of tokens as nanoGPT and llm.c have them: documents or windows", Random: atRandom, Example: "train.bin?window=1024"},
	"voc":        {Reads: "Pascal VOC: an XML file per image, and masks as PNG", Random: atRandom, Example: "VOCdevkit/VOC2012?split=train&masks=classes"},
	"yolo":       {Reads: "YOLO: a text file of boxes, polygons or key points per image, and data.yaml", Random: atRandom, Example: "coco8/data.yaml?split=train"},
	"coco":       {Reads: "COCO's JSON of instances, key points or captions beside a folder of images", Random: atRandom, Example: "annotations/instances_val2017.json?images=val2017&masks=instances"},
	"flo":        {Reads: "optical flow: Middlebury .flo files", Random: atRandom, Example: "flow/"},
	"pfm":        {Reads: "portable float maps", Random: atRandom, Example: "depth/"},
	"nifti":      {Reads: "NIfTI volumes, .nii and .nii.gz, whole or in patches", Random: atRandom, Example: "scans/?patch=64x96x96"},
	"dicom":      {Reads: "DICOM series: folders of slices, sorted by their position, and files of several frames", Random: atRandom, Example: "ct/"},
	"volumes":    {Reads: "volumes of any form: .npy files of three axes, TIFF files of several pages, NIfTI, DICOM; with their labels, too", Random: atRandom, Example: "volumes:data/?image=images/*.npy&label=labels/*.npy"},
	"ply":        {Reads: "point clouds: .ply files, ASCII and binary", Random: atRandom, Example: "scans/"},
	"kitti":      {Reads: "point clouds of KITTI and its kin: .bin files of float32", Random: atRandom, Example: "kitti:velodyne/?numbers=4"},
	"csv":        {Reads: "CSV with columns of paths, labels, boxes, text", Random: atRandom, Example: "train.csv?image:image=path&label:label=class"},
	"tsv":        {Reads: "the same with tabs", Random: atRandom, Example: "train.tsv"},
	"jsonl":      {Reads: "one JSON object a line", Random: atRandom, Example: "train.jsonl"},
	"files":      {Reads: "any files, as bytes", Random: atRandom, Example: "files:scans/"},
	"pairs":      {Reads: "files that belong together, by rule: images and masks", Random: atRandom, Example: "pairs:data/?image=images/*.jpg&mask=masks/*.png"},
	"audio":      {Reads: "folders of sound, one per class, and single files: WAV, FLAC, MP3, Ogg Vorbis, Opus", Random: atRandom, Example: "sounds/"},
	"video":      {Reads: "clips out of folders of video, one per class, and single files: MP4, MOV, Matroska, WebM, AVI of JPEGs", Random: atRandom, Example: "videos/?frames=16&stride=2"},
	FormatFolder: {Reads: "folders of images, one per class: JPEG, PNG, BMP, GIF, WebP, TIFF, PPM and its kin", Random: atRandom, Example: "photos/"},
}

// Describe says of every format what people want to know of it, in the order in
// which they are tried.
func Describe() []About {
	var all []About
	for _, f := range formats() {
		if f.own {
			continue
		}
		a := told[f.name]
		a.Name, a.Splits, a.Columns, a.Patterns, a.Window = f.name, f.splits || f.parts, f.columns, f.patterns, f.window
		all = append(all, a)
	}
	return all
}

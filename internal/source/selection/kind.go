package selection

import (
	"bytes"
	"path"
	"strings"

	"github.com/stokerdata/stoker/internal/audio"
	"github.com/stokerdata/stoker/internal/imagefile"
	"github.com/stokerdata/stoker/internal/video"
	"github.com/stokerdata/stoker/source/driver"
)

// Kind is the kind of data in a file.
type Kind uint8

// The kinds. None is every file that is not media.
const (
	None Kind = iota
	Image
	Sound
	Video
	DICOM
	NIfTI
	kinds
)

// String returns the name of the kind for messages.
func (k Kind) String() string {
	return [kinds]string{"a file", "an image", "sound", "a video", "a DICOM file", "a volume"}[k]
}

// Files returns the plural of the name.
func (k Kind) Files() string {
	return [kinds]string{"files", "images", "sound", "videos", "DICOM files", "volumes"}[k]
}

// Wanted returns, for messages, the name of one file of the kind and the usual extensions.
func (k Kind) Wanted() (one, ends string) {
	switch k {
	case Image:
		return "image", ".jpg, .jpeg, .png, .bmp, .gif, .webp, .tiff, .ppm and the like"
	case Sound:
		return "sound", ".wav, .flac, .mp3, .ogg, .opus, .m4a, .aiff and the like"
	case Video:
		return "video", ".mp4, .mov, .avi, .mkv, .webm, .mpg, .flv, .wmv and the like"
	case DICOM:
		return "DICOM file", ".dcm, .dicom, .ima and files whose first bytes are those of DICOM"
	case NIfTI:
		return "volume", ".nii and .nii.gz"
	}
	return "file", "any file that is not hidden"
}

// format returns the name of the format that reads the kind.
func (k Kind) format() string {
	return [kinds]string{"files", "folder", "audio", "video", "dicom", "nifti"}[k]
}

// Type describes a file by its name or its first bytes.
type Type struct {
	Kind Kind
	// Known is true if the kind is certain. Otherwise the first bytes decide.
	Known bool
	// Unread names the format of a file whose kind is supported but whose format is not.
	Unread string
}

// byExtension has the extensions that settle the type of a file.
var byExtension = func() map[string]Type {
	all := map[string]Type{}
	put := func(k Kind, unread bool, extensions ...string) {
		for _, e := range extensions {
			t := Type{Kind: k, Known: true}
			if unread {
				t.Unread = e
			}
			all[e] = t
		}
	}
	put(None, false, ".txt", ".md", ".markdown", ".rst", ".tex", ".bib", ".rtf", ".pdf", ".doc", ".docx", ".odt", ".ppt", ".pptx", ".srt", ".vtt", ".lab", ".textgrid", ".cue", ".m3u", ".m3u8", ".nfo",
		".json", ".jsonl", ".ndjson", ".geojson", ".xml", ".xmp", ".yaml", ".yml", ".toml", ".ini", ".cfg", ".conf", ".log", ".html", ".htm", ".css", ".lock",
		".csv", ".tsv", ".xls", ".xlsx", ".ods", ".parquet", ".arrow", ".feather", ".db", ".sqlite", ".mdb", ".list", ".lst", ".names", ".bval", ".bvec",
		".md5", ".sha1", ".sha256", ".sha512", ".sum", ".sfv", ".crc", ".sig", ".asc",
		".py", ".pyc", ".ipynb", ".js", ".sh", ".bat", ".m", ".r", ".c", ".cpp", ".h", ".go", ".rs", ".java",
		".zip", ".tar", ".tgz", ".gz", ".bz2", ".xz", ".zst", ".7z", ".rar", ".npy", ".npz", ".mat", ".pkl", ".pickle", ".pt", ".pth", ".safetensors",
		".h5", ".hdf5", ".bin", ".idx", ".mds", ".tfrecord", ".tfrecords", ".aux", ".exe", ".dll", ".so", ".flo", ".pfm", ".ply", ".pcd", ".bak", ".tmp", ".part", ".crdownload")
	put(Image, false, driver.ImageExtensions...)
	put(Image, true, ".heic", ".heif", ".jp2", ".j2k", ".jpf", ".jpx", ".svg", ".svgz", ".psd", ".ico", ".tga", ".exr", ".xcf",
		".dng", ".cr2", ".cr3", ".nef", ".arw", ".raf", ".orf", ".rw2", ".pef", ".srw")
	put(Sound, false, audio.Extensions...)
	put(Sound, true, ".mid", ".midi")
	put(Video, false, video.Extensions...)
	put(DICOM, false, ".dcm", ".dicom", ".ima")
	put(NIfTI, false, ".nii")
	put(NIfTI, true, ".nrrd", ".nhdr", ".mha", ".mhd", ".mgz", ".mgh", ".mnc")
	return all
}()

// plain has the lower-case names of text files without an extension.
var plain = map[string]bool{
	"readme": true, "license": true, "licence": true, "copying": true, "notice": true, "authors": true, "changelog": true, "version": true,
	"md5sums": true, "sha1sums": true, "sha256sums": true, "sha512sums": true, "checksums": true, "md5sum": true, "sha256sum": true, "makefile": true, "dockerfile": true,
}

// ByName returns the type of a file by its name.
func ByName(name string) Type {
	dot := strings.LastIndexByte(name, '.')
	if dot >= 0 {
		if t, ok := byExtension[lower(name[dot:])]; ok {
			if t.Kind == None && len(name) > 7 && strings.EqualFold(name[len(name)-7:], ".nii.gz") {
				t.Kind = NIfTI
			}
			return t
		}
	}
	switch base := strings.ToLower(path.Base(name)); {
	case base == "dicomdir":
		return Type{Kind: DICOM, Known: true}
	case plain[base]:
		return Type{Known: true}
	}
	return Type{}
}

// lower returns a short extension in lower case. Most extensions are already, so it rarely
// allocates.
func lower(s string) string {
	for i := range len(s) {
		if c := s[i]; c >= 'A' && c <= 'Z' || c >= 0x80 {
			return strings.ToLower(s)
		}
	}
	return s
}

// ByContent returns the type of a file by its first bytes. The kind is None for unknown bytes.
func ByContent(b []byte) Type {
	has := func(at int, s string) bool { return len(b) >= at+len(s) && string(b[at:at+len(s)]) == s }
	read := func(k Kind) Type { return Type{Kind: k, Known: true} }
	not := func(k Kind, format string) Type { return Type{Kind: k, Known: true, Unread: format} }
	switch {
	case has(0, "OggS") && bytes.Contains(b, []byte("theora")):
		return read(Video)
	case audio.HasMagic(b), isMP3(b), has(0, "#!AMR"), has(0, "MAC "), has(0, "wvpk"), has(0, "TTA1"), has(0, "NIST_1A"), has(0, "Creative Voice File"):
		return read(Sound)
	case has(0, "RIFF") && has(8, "AVI "), has(0, "\x1a\x45\xdf\xa3"):
		return read(Video)
	case has(0, "FLV\x01"):
		return read(Video)
	case has(0, "\x30\x26\xb2\x75\x8e\x66\xcf\x11"):
		return read(Video)
	case has(0, "\x00\x00\x01\xba"), has(0, "\x00\x00\x01\xb3"):
		return read(Video)
	case isTransport(b, 0, 188), isTransport(b, 4, 192):
		return read(Video)
	case has(128, "DICM"):
		return read(DICOM)
	case has(344, "n+1\x00"):
		return read(NIfTI)
	case has(344, "ni1\x00"):
		return not(NIfTI, "NIfTI pair")
	case has(0, "NRRD000"):
		return not(NIfTI, "NRRD")
	case imagefile.IsPicture(b, len(b) < headBytes) && !has(0, "PF\n") && !has(0, "Pf\n"):
		return read(Image)
	case has(4, "ftyp"):
		return byBrand(b)
	case has(0, "8BPS"):
		return not(Image, "PSD")
	case has(0, "\x00\x00\x00\x0cjP  \r\n"), has(0, "\xff\x4f\xff\x51"):
		return not(Image, "JPEG 2000")
	case has(0, "\x76\x2f\x31\x01"):
		return not(Image, "OpenEXR")
	case has(0, "#?RADIANCE"):
		return not(Image, "Radiance HDR")
	}
	return Type{Known: true}
}

// byBrand returns the type of a file in the ISO base media format.
func byBrand(b []byte) Type {
	if len(b) < 12 {
		return Type{Known: true}
	}
	t := Type{Kind: Video, Known: true}
	switch brand := string(b[8:12]); brand {
	case "heic", "heix", "heim", "heis", "hevc", "hevx", "mif1", "msf1":
		t.Kind, t.Unread = Image, "HEIF"
	case "crx ":
		t.Kind, t.Unread = Image, "CR3"
	case "M4A ", "M4B ", "M4P ":
		t.Kind = Sound
	}
	return t
}

// isMP3 reports whether bytes begin with an ID3 tag or an MPEG layer III frame.
func isMP3(b []byte) bool {
	if len(b) >= 4 && string(b[:3]) == "ID3" {
		return true
	}
	// Eleven bits of synchronization, a version, layer III, a bit rate and a rate.
	return len(b) >= 4 && b[0] == 0xff && b[1]&0xe6 == 0xe2 && b[1]&0x18 != 0x08 && b[2]&0xf0 != 0xf0 && b[2]&0xf0 != 0 && b[2]&0x0c != 0x0c
}

// isTransport reports whether packets of an MPEG transport stream begin at a byte.
func isTransport(b []byte, at, size int) bool {
	n := 0
	for ; at < len(b); at += size {
		if b[at] != 0x47 {
			return false
		}
		n++
	}
	return n >= 2
}

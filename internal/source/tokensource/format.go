package tokensource

import (
	"context"
	"path"
	"slices"

	"github.com/stokerdata/stoker/internal/source/format"
	"github.com/stokerdata/stoker/internal/source/place"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// Format is .bin files of tokens, and .npy files if the URL asks for tokens.
var Format = &format.Format{
	Name:    Bin,
	Reads:   ".bin files of tokens as nanoGPT and llm.c write them: documents or windows",
	Example: "train.bin?window=1024",
	Guide:   "reference/text.md",
	Params: []format.Param{
		window,
		{Name: "dtype", Type: format.Choice, Choices: types, Default: string(driver.Uint16), Help: "The type of the tokens, of files that do not say it."},
		{Name: "eot", Type: format.Int, Help: "The token that ends documents. Without it each file is a document."},
		{Name: "bos", Type: format.Int, Help: "The token that begins documents."},
	},
	Patterns: true,
	Match: func(ctx context.Context, p *format.Probe) bool {
		if !p.Dir {
			return path.Ext(p.Store.Path("")) == ".bin" || IsFile(ctx, p.Store, "")
		}
		bin, named := "", false
		return p.All(ctx, func(name string) bool {
			if path.Ext(name) == ".bin" {
				bin = name
				named = named || slices.Contains([]string{"train.bin", "val.bin"}, path.Base(name))
			}
			return isNote(name)
		}) && bin != "" && (named || IsFile(ctx, p.Store, bin))
	},
	Open: openWith(Open),
}

// FormatMegatron is pairs of a .bin file and its index.
var FormatMegatron = &format.Format{
	Name:    Megatron,
	Reads:   "Megatron-LM's .bin and .idx files: documents, sequences or windows",
	Example: "corpus_text_document.bin",
	Guide:   "reference/text.md",
	Params: []format.Param{
		window,
		{Name: "records", Type: format.Choice, Choices: []string{"documents", "sequences"}, Default: "documents", Help: "What the records are. A document can have several sequences."},
	},
	Patterns: true,
	Match: func(ctx context.Context, p *format.Probe) bool {
		if !p.Dir {
			name := IndexName(p.Store.Path(""))
			return name != "" && IsIndex(ctx, place.At(p.Store, name), "")
		}
		index := ""
		return p.All(ctx, func(name string) bool {
			if index == "" && path.Ext(name) == ".idx" {
				index = name
			}
			return isNote(name)
		}) && index != "" && IsIndex(ctx, p.Store, index)
	},
	Open: openWith(OpenMegatron),
}

var window = format.Param{Name: "window", Type: format.Int, Min: 1, Help: "Cut the tokens into records of this many, instead of documents."}

// types are the types that tokens can have.
var types = []string{"uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"}

// isNote accepts the extensions of files of tokens, and of those that lie next to them.
var isNote = format.Extensions(".bin", ".idx", ".json", ".txt", ".md", ".py", ".pkl", ".model", ".sh", ".yaml")

func openWith(open func(ctx context.Context, url string, st store.Store, opt *Options) (driver.Source, error)) func(context.Context, *format.Request) (driver.Source, error) {
	return func(ctx context.Context, r *format.Request) (driver.Source, error) {
		o := parse(&r.Values)
		o.Names, o.Threads = r.Names, r.Threads
		folder, file := r.Folder()
		if file != "" {
			o.Names = []string{file}
		}
		return open(ctx, r.URL, folder, o)
	}
}

func parse(v *format.Values) *Options {
	o := New()
	o.Window, o.DType, o.Sequences = v.Int("window"), driver.DType(v.Text("dtype")), v.Text("records") == "sequences"
	if v.Has("eot") {
		o.End = v.Int("eot")
	}
	if v.Has("bos") {
		o.Begin = v.Int("bos")
	}
	return o
}

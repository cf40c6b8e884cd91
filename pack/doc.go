// Package pack writes, reads and checks packs: datasets in a few large files
// that every tool which knows Apache Arrow can open.
//
// A pack is a folder with shards (ordinary Arrow IPC files) and manifest.json,
// which says where each chunk of records lies, its checksum, the class names
// and what the loader must know to plan. docs/reference/pack-format.md specifies all of it.
//
//	summary, err := pack.Write(ctx, "photos/", "photos.pack", nil)
//	...
//	r, err := pack.Open(ctx, "photos.pack", nil)
//	...
//	defer r.Close()
//	rec, err := r.Record(17)
//
// The manifest is written last. Until then the folder is unfinished, every
// reader refuses it with a line that says how to finish it, and Write with the
// same arguments goes on where it was interrupted; the result is the same, bit
// for bit, as that of an uninterrupted run.
package pack

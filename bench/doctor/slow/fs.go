package main

import (
	"context"
	"fmt"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// serveFS mounts a folder, read-only and slow, at a mount point.
func serveFS(folder, mountpoint string, b *brake) (address string, stop func() error, err error) {
	if mountpoint == "" {
		return "", nil, fmt.Errorf("want FOLDER MOUNTPOINT")
	}
	var stat syscall.Stat_t
	if err := syscall.Stat(folder, &stat); err != nil {
		return "", nil, err
	}
	root := &fs.LoopbackRoot{Path: folder, Dev: uint64(stat.Dev)}
	root.NewNode = func(data *fs.LoopbackRoot, _ *fs.Inode, _ string, _ *syscall.Stat_t) fs.InodeEmbedder {
		return &node{LoopbackNode: fs.LoopbackNode{RootData: data}, brake: b}
	}
	server, err := fs.Mount(mountpoint, root.NewNode(root, nil, "", &stat), &fs.Options{
		MountOptions: fuse.MountOptions{
			FsName: "slow", Name: "slow", Options: []string{"ro"}, DirectMountStrict: true, AllowOther: true,
		},
	})
	if err != nil {
		return "", nil, fmt.Errorf("mount at %s: %w", mountpoint, err)
	}
	return mountpoint, func() error {
		if err := server.Unmount(); err != nil {
			// A process still has a file open: take the mount out of sight, the kernel does the rest.
			return syscall.Unmount(mountpoint, syscall.MNT_DETACH)
		}
		return nil
	}, nil
}

// node is a file or folder. Opening and reading it are slow.
type node struct {
	fs.LoopbackNode
	brake *brake
}

func (n *node) Open(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	n.brake.request()
	f, fuseFlags, errno := n.LoopbackNode.Open(ctx, flags)
	if errno != 0 {
		return nil, 0, errno
	}
	return &file{f, n.brake}, fuseFlags, 0
}

// file is an open file.
type file struct {
	inner fs.FileHandle
	brake *brake
}

func (f *file) Read(ctx context.Context, dest []byte, offset int64) (fuse.ReadResult, syscall.Errno) {
	f.brake.request()
	result, errno := f.inner.(fs.FileReader).Read(ctx, dest, offset)
	if errno == 0 {
		f.brake.transfer(result.Size())
	}
	return result, errno
}

func (f *file) Release(ctx context.Context) syscall.Errno {
	return f.inner.(fs.FileReleaser).Release(ctx)
}

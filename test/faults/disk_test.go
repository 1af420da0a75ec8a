package faults

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"federator.dev/federator/test/kube"
)

// diskBytes is the size of the disk that the index is kept on.
const diskBytes = 64 << 20

// mountDisk makes the disk that the index is kept on a small one, where that is permitted.
func (r *rig) mountDisk() {
	r.t.Helper()
	dir := filepath.Join(r.dir, "kept")
	r.do(os.MkdirAll(dir, 0o755))
	if err := syscall.Mount("federator-faults", dir, "tmpfs", 0, fmt.Sprint("size=", diskBytes)); err != nil {
		r.unmounted = fmt.Sprintf("mount of a tmpfs: %v", err)
		return
	}
	r.t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			r.t.Errorf("unmount %s: %v", dir, err)
		}
	})
}

// diskFaults befall what is kept on disk.
var diskFaults = []fault{
	{name: "bytes of files flipped, each class", short: true, lists: unbounded, inject: flipBytes, note: func(r *rig) string { return r.flipped }},
	{
		name: "disk full", hold: 20 * time.Second, brief: 2 * time.Second, able: ableToFill,
		inject: fillDisk, during: notKeeping, heal: emptyDisk,
	},
	{
		name: "disk full, SIGKILL", hold: 5 * time.Second, brief: time.Second, able: ableToFill, lists: unbounded,
		inject: fillDisk, during: notKeeping, heal: func(r *rig) error {
			r.kill()
			r.start() // with a disk that is full
			err := kube.Until(r.t.Context(), patience, func() error { return r.reads(r.t.Context()) })
			return errors.Join(err, emptyDisk(r))
		},
	},
}

func ableToFill(r *rig) string { return r.unmounted }

func (r *rig) filler() string { return filepath.Join(r.dir, "kept", "filler") }

// fillDisk writes until there is no room.
func fillDisk(r *rig) error {
	f, err := os.Create(r.filler())
	if err != nil {
		return err
	}
	defer f.Close()
	for size := 1 << 20; size > 0; {
		if _, err := f.Write(make([]byte, size)); err != nil {
			if !errors.Is(err, syscall.ENOSPC) {
				return err
			}
			size /= 2
		}
	}
	return nil
}

func emptyDisk(r *rig) error { return os.Remove(r.filler()) }

// notKeeping waits until federator says that it does not keep anything, and that it reads on.
func notKeeping(r *rig) error {
	return r.untilErr(func() error {
		return errors.Join(r.reads(r.t.Context()), r.logged("no space left on device"))
	})
}

// reads returns an error unless federator answers.
func (r *rig) reads(ctx context.Context) error {
	_, _, err := r.list(ctx, "https://"+r.query+"/fleet"+configMaps, 0)
	return err
}

// flip is a byte of a file that is changed.
type flip struct {
	file, class string
	at          int64
}

// flips are one byte of each class of each sort of file: of a file of frames, each field of the
// frame's header and the payload, of the first frame, which is the file's header, and of a later one.
func (r *rig) flips() (out []flip, err error) {
	seen := map[string]bool{}
	add := func(path, sort, class string, at int64) {
		if !seen[sort+class] {
			seen[sort+class] = true
			out = append(out, flip{path, sort + " " + class, at})
		}
	}
	err = filepath.WalkDir(r.kept(), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil || len(data) == 0 {
			return err
		}
		sort := strings.TrimPrefix(filepath.Ext(path), ".")
		if sort == "" || sort == "json" {
			sort = d.Name()
		}
		if sort != "log" && sort != "segment" && sort != "seg" {
			for class, at := range map[string]int{"first byte": 0, "middle": len(data) / 2, "last byte": len(data) - 1} {
				add(path, sort, class, int64(at))
			}
			return nil
		}
		r.frameFlips(data, func(class string, at int) { add(path, sort, class, int64(at)) })
		return nil
	})
	slices.SortFunc(out, func(a, b flip) int { return strings.Compare(a.class, b.class) })
	return out, err
}

// frameFields are the fields of a frame's header, and where they are in it.
var frameFields = map[string]int{"length": 1, "revision": 6, "type": 12, "header checksum": 15, "payload checksum": 19}

const frameHead = 21

// frameFlips finds bytes of the first frame of a file and of one drawn of the others.
func (r *rig) frameFlips(data []byte, add func(class string, at int)) {
	var starts []int
	for at := 0; at+frameHead <= len(data); {
		starts = append(starts, at)
		at += frameHead + int(data[at]) + int(data[at+1])<<8 + int(data[at+2])<<16 + int(data[at+3])<<24
	}
	if len(starts) < 2 {
		return
	}
	for which, at := range map[string]int{"file header": 0, "frame": starts[1+r.rng.IntN(len(starts)-1)]} {
		for field, offset := range frameFields {
			add(which+" "+field, at+offset)
		}
		add(which+" payload", at+frameHead)
	}
}

// flipBytes flips a byte of each class, in a copy of what federator has kept, and starts it with that.
func flipBytes(r *rig) error {
	if all() { // it takes a minute until there are segments
		if err := r.untilErr(r.hasSegments); err != nil {
			return err
		}
	}
	r.kill()
	saved := filepath.Join(r.dir, "saved")
	if err := os.CopyFS(saved, os.DirFS(r.kept())); err != nil {
		return err
	}
	known, err := r.flips()
	if err != nil {
		return err
	}
	classes := slices.Clone(known)
	if !all() {
		r.rng.Shuffle(len(known), func(i, j int) { classes[i], classes[j] = classes[j], classes[i] })
		classes = classes[:min(3, len(known))]
	}
	for i, f := range classes {
		if i > 0 {
			r.kill()
		}
		if err := errors.Join(os.RemoveAll(r.kept()), os.CopyFS(r.kept(), os.DirFS(saved)), flipByte(f)); err != nil {
			return err
		}
		r.start()
		release := r.pause()
		err = kube.Until(r.t.Context(), patience, func() error { return r.exact(r.t.Context()) })
		release()
		if err != nil {
			return fmt.Errorf("%s flipped: %w", f.class, err)
		}
	}
	r.flipped = fmt.Sprintf("%d of %d", len(classes), len(known))
	return os.RemoveAll(saved)
}

// hasSegments returns an error until every sort of file is there.
func (r *rig) hasSegments() error {
	all, err := r.flips()
	if err == nil && !slices.ContainsFunc(all, func(f flip) bool { return f.class == "segment frame payload" }) {
		err = errors.New("there is no segment with objects")
	}
	return err
}

func flipByte(f flip) error {
	file, err := os.OpenFile(f.file, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	var b [1]byte
	if _, err := file.ReadAt(b[:], f.at); err != nil {
		return err
	}
	b[0] ^= 0x10
	_, err = file.WriteAt(b[:], f.at)
	return err
}

package checkout_test

import (
	"bytes"
	"compress/zlib"
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"federator.dev/federator/pkg/policysource/internal/checkout"
	"federator.dev/federator/test/git"
)

// packed is an object on its way into a pack.
type packed struct {
	kind     int // 1 commit, 2 tree, 3 blob, 6 offset delta
	declared int // its length as the pack says; -1 is the real one
	data     []byte
	base     int64 // how far before it the base of a delta begins
}

// pack writes a pack as no git would.
func pack(objects ...packed) []byte {
	var out bytes.Buffer
	out.WriteString("PACK")
	_ = binary.Write(&out, binary.BigEndian, []uint32{2, uint32(len(objects))})
	for _, o := range objects {
		n := o.declared
		if n < 0 {
			n = len(o.data)
		}
		b := byte(o.kind<<4) | byte(n&15)
		for n >>= 4; n > 0; n >>= 7 {
			out.WriteByte(b | 0x80)
			b = byte(n & 0x7f)
		}
		out.WriteByte(b)
		if o.kind == 6 {
			out.WriteByte(byte(o.base))
		}
		z := zlib.NewWriter(&out)
		_, _ = z.Write(o.data)
		z.Close()
	}
	sum := sha1.Sum(out.Bytes())
	out.Write(sum[:])
	return out.Bytes()
}

func object(kind string, data []byte) string {
	sum := sha1.Sum(append(fmt.Appendf(nil, "%s %d\x00", kind, len(data)), data...))
	return hex.EncodeToString(sum[:])
}

func treeOf(entries ...string) []byte {
	var out []byte
	for i := 0; i < len(entries); i += 2 {
		raw, _ := hex.DecodeString(entries[i+1])
		out = append(append(append(out, entries[i]...), 0), raw...)
	}
	return out
}

func commitOf(tree string) []byte {
	return []byte("tree " + tree + "\nauthor A <a@b> 1 +0000\ncommitter A <a@b> 1 +0000\n\nmessage\n")
}

func line(s string) string { return fmt.Sprintf("%04x%s", len(s)+4, s) }

// lying makes a server answer with one commit and a pack of its own.
func lying(web *git.HTTPS, head string, pack []byte) {
	web.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodGet {
			w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
			_, _ = io.WriteString(w, line("# service=git-upload-pack\n")+"0000"+line(head+" HEAD\x00shallow ofs-delta\n")+"0000")
			return true
		}
		w.Header().Set("Content-Type", "application/x-git-upload-pack-result")
		_, _ = io.WriteString(w, line("shallow "+head)+"0000"+line("NAK\n"))
		_, _ = w.Write(pack)
		return true
	})
}

func TestUnpack_RejectsHostilePacks(t *testing.T) {
	web := must[*git.HTTPS](t)(git.ServeHTTPS(t.TempDir()))
	defer web.Close()
	blob := []byte("package a\n")
	id := object("blob", blob)
	good := treeOf("100644 a.rego", id)
	bomb := make([]byte, 64<<20)
	whole := func(tree []byte) []packed {
		return []packed{{kind: 1, declared: -1, data: commitOf(object("tree", tree))}, {kind: 2, declared: -1, data: tree}, {kind: 3, declared: -1, data: blob}}
	}
	headOf := func(tree []byte) string { return object("commit", commitOf(object("tree", tree))) }
	nested := good
	var levels []packed
	for range 12 { // 10^12 files of one blob
		levels = append(levels, packed{kind: 2, declared: -1, data: nested})
		var next []string
		for i := range 10 {
			next = append(next, fmt.Sprintf("40000 d%d", i), object("tree", nested))
		}
		nested = treeOf(next...)
	}
	delta := append([]byte{10}, 0xff, 0xff, 0xff, 0xff, 0xff, 0x0f, 0x80) // of a target of 2^42 bytes
	for name, c := range map[string]struct {
		head string
		pack []byte
		want error
	}{
		"as it should be":      {headOf(good), pack(whole(good)...), nil},
		"a bomb":               {headOf(good), pack(packed{kind: 3, declared: -1, data: bomb}), checkout.ErrLimit},
		"a bomb of false size": {headOf(good), pack(packed{kind: 3, declared: 10, data: bomb}), checkout.ErrProtocol},
		"a length of 2^56":     {headOf(good), pack(packed{kind: 3, declared: 1 << 56, data: blob}), checkout.ErrLimit},
		"a delta of 2^42":      {headOf(good), pack(packed{kind: 3, declared: -1, data: blob}, packed{kind: 6, declared: -1, data: delta, base: 19}), checkout.ErrLimit},
		"a delta cut short":    {headOf(good), pack(packed{kind: 3, declared: -1, data: blob}, packed{kind: 6, declared: -1, data: []byte{0x80}, base: 19}), checkout.ErrUnreachable},
		"a bomb of trees":      {headOf(nested), pack(append(whole(nested), levels...)...), checkout.ErrLimit},
		"no commit":            {headOf(good), pack(packed{kind: 3, declared: -1, data: blob}), checkout.ErrProtocol},
		"no tree":              {headOf(good), pack(whole(good)[0]), checkout.ErrProtocol},
		"no blob":              {headOf(good), pack(whole(good)[:2]...), checkout.ErrProtocol},
		"a broken sum":         {headOf(good), append(pack(whole(good)...)[:100], 1, 2, 3), checkout.ErrProtocol},
		"cut":                  {headOf(good), pack(whole(good)...)[:60], checkout.ErrUnreachable},
		"not a pack":           {headOf(good), []byte("hello, world"), checkout.ErrProtocol},
		"a blob as the commit": {id, pack(whole(good)...), checkout.ErrProtocol},
		"..":                   {headOf(treeOf("100644 ..", id)), pack(whole(treeOf("100644 ..", id))...), checkout.ErrContent},
		".GIT":                 {headOf(treeOf("100644 .GIT", id)), pack(whole(treeOf("100644 .GIT", id))...), checkout.ErrContent},
		"a path as a name":     {headOf(treeOf("100644 ../../etc/passwd", id)), pack(whole(treeOf("100644 ../../etc/passwd", id))...), checkout.ErrContent},
		"no name":              {headOf(treeOf("100644 ", id)), pack(whole(treeOf("100644 ", id))...), checkout.ErrContent},
		"a control character":  {headOf(treeOf("100644 a\x1b[2J.rego", id)), pack(whole(treeOf("100644 a\x1b[2J.rego", id))...), checkout.ErrContent},
		"a name twice":         {headOf(treeOf("100644 a", id, "100644 a", id)), pack(whole(treeOf("100644 a", id, "100644 a", id))...), checkout.ErrContent},
		"an unknown mode":      {headOf(treeOf("777 a", id)), pack(whole(treeOf("777 a", id))...), checkout.ErrContent},
		"a tree cut short":     {headOf(good[:20]), pack(whole(good[:20])...), checkout.ErrContent},
	} {
		lying(web, c.head, c.pack)
		req := checkout.Request{URL: web.URL + "/r", Auth: checkout.Auth{CA: web.CA}, Limits: checkout.Limits{Unpacked: 32 << 20}}
		got, err := new(checkout.Client).Fetch(t.Context(), req)
		switch {
		case c.want == nil && (err != nil || got.Commit != c.head):
			t.Errorf("%s: %v", name, err)
		case c.want != nil && !errors.Is(err, c.want):
			t.Errorf("%s: %v, want %v", name, err, c.want)
		case err != nil && strings.ContainsAny(err.Error(), "\x1b\n"):
			t.Errorf("%s: %q is not printable", name, err)
		}
	}
}

func TestParseCommit_RejectsInvalidCommits(t *testing.T) {
	web := must[*git.HTTPS](t)(git.ServeHTTPS(t.TempDir()))
	defer web.Close()
	blob := []byte("package a\n")
	tree := treeOf("100644 a.rego", object("blob", blob))
	id := object("tree", tree)
	const who = "A <a@b> 1 +0000\n"
	for name, text := range map[string]string{
		"two trees":         "tree " + id + "\ntree " + id + "\nauthor " + who + "committer " + who + "\n",
		"tree not first":    "author " + who + "tree " + id + "\ncommitter " + who + "\n",
		"no tree":           "author " + who + "committer " + who + "\n",
		"no committer":      "tree " + id + "\nauthor " + who + "\n",
		"two committers":    "tree " + id + "\nauthor " + who + "committer " + who + "committer " + who + "\n",
		"two signatures":    "tree " + id + "\nauthor " + who + "committer " + who + "gpgsig a\ngpgsig b\n\n",
		"no end":            "tree " + id + "\nauthor " + who + "committer " + who,
		"a time beyond all": "tree " + id + "\nauthor A <a@b> 99999999999999 +0000\ncommitter " + who + "\n",
		"an odd author":     "tree " + id + "\nauthor A\ncommitter " + who + "\n",
		"a continuation":    " tree " + id + "\n\n",
		"a header alone":    "tree\n\n",
	} {
		lying(web, object("commit", []byte(text)), pack(packed{kind: 1, declared: -1, data: []byte(text)}, packed{kind: 2, declared: -1, data: tree}, packed{kind: 3, declared: -1, data: blob}))
		_, err := new(checkout.Client).Fetch(t.Context(), checkout.Request{URL: web.URL + "/r", Auth: checkout.Auth{CA: web.CA}})
		if !errors.Is(err, checkout.ErrContent) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

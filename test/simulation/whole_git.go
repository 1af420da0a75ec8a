package simulation

import (
	"bytes"
	"compress/zlib"
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

// gitHost is who requests to the repository are to.
const gitHost = "git"

// repository is a git repository in memory, with one branch, served over git's smart HTTP
// (gitprotocol-http(5)) to clients that fetch one commit.
type repository struct {
	head  string
	packs map[string][]byte // with a commit, its tree and its files, by the commit
}

func newRepository() *repository { return &repository{packs: map[string][]byte{}} }

// Types of objects in a pack.
const (
	gitCommit = 1
	gitTree   = 2
	gitBlob   = 3
)

// pack is a pack that is being written (gitformat-pack(5)).
type pack struct {
	objects uint32
	body    bytes.Buffer
}

// add adds an object, and returns its hash.
func (p *pack) add(kind int, data string) [sha1.Size]byte {
	size := len(data)
	head := byte(kind<<4 | size&15)
	for size >>= 4; size > 0; size >>= 7 {
		p.body.WriteByte(head | 0x80)
		head = byte(size & 0x7f)
	}
	p.body.WriteByte(head)
	z := zlib.NewWriter(&p.body)
	_, err := io.WriteString(z, data)
	must(err)
	must(z.Close())
	p.objects++
	name := map[int]string{gitCommit: "commit", gitTree: "tree", gitBlob: "blob"}[kind]
	return sha1.Sum(fmt.Appendf(nil, "%s %d\x00%s", name, len(data), data))
}

func (p *pack) bytes() []byte {
	out := binary.BigEndian.AppendUint32([]byte("PACK\x00\x00\x00\x02"), p.objects)
	out = append(out, p.body.Bytes()...)
	sum := sha1.Sum(out)
	return append(out, sum[:]...)
}

// commit adds a commit of files, all in the root, to the branch.
func (r *repository) commit(files map[string]string) string {
	p := &pack{}
	tree := ""
	for _, name := range slices.Sorted(maps.Keys(files)) {
		hash := p.add(gitBlob, files[name])
		tree += "100644 " + name + "\x00" + string(hash[:])
	}
	parent := ""
	if r.head != "" {
		parent = "parent " + r.head + "\n"
	}
	by := fmt.Sprintf("Ann <ann@example.com> %d +0000", time.Now().Unix())
	hash := p.add(gitCommit, fmt.Sprintf("tree %x\n%sauthor %s\ncommitter %s\n\n%d\n", p.add(gitTree, tree), parent, by, by, len(r.packs)))
	r.head = hex.EncodeToString(hash[:])
	r.packs[r.head] = p.bytes()
	return r.head
}

// line is a line of the protocol (gitprotocol-common(5)).
func line(text string) string { return fmt.Sprintf("%04x%s", len(text)+4, text) }

const flush = "0000"

// answer answers a request.
func (r *repository) answer(p *parked) *http.Response {
	kind, body := "advertisement", line("# service=git-upload-pack\n")+flush+line(r.head+" HEAD\x00shallow symref=HEAD:refs/heads/main\n")+line(r.head+" refs/heads/main\n")+flush
	if p.request.Method == http.MethodPost {
		_, rest, _ := strings.Cut(string(p.body), "want ")
		hash := rest[:2*sha1.Size]
		kind, body = "result", line("shallow "+hash+"\n")+flush+line("NAK\n")+string(r.packs[hash])
	}
	return &http.Response{
		StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: p.request, ContentLength: int64(len(body)),
		Header: http.Header{"Content-Type": {"application/x-git-upload-pack-" + kind}}, Body: io.NopCloser(strings.NewReader(body)),
	}
}

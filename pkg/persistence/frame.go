package persistence

import (
	"bufio"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"

	"federator.dev/federator/pkg/aggregate"
)

// A file is a sequence of frames. The first is its header, in clear; the others are sealed
// where there is a key. A frame is
//
//	length of the payload   4 bytes, little endian as all numbers
//	revision                8 bytes
//	type                    1 byte
//	CRC32C of these 13      4 bytes
//	CRC32C of the payload   4 bytes
//	payload
//
// The header of a frame has a checksum of its own, so that its length is believed only then.
const frameHeader = 4 + 8 + 1 + 4 + 4

// Types of frames.
const (
	typeHeader  byte = 'H' // of a file
	typePart    byte = 'p' // of a batch that goes on in the next frame
	typeBatch   byte = 'B' // the rest of a batch
	typeMember  byte = 'M'
	typeScope   byte = 'S'
	typeObjects byte = 'O'
	typeTail    byte = 'T'
	typeEnd     byte = 'E' // of a segment: without it, there is none
	typeProof   byte = 'P' // of the header, where the file is sealed: it is bound to it
	typeVoid    byte = 'V' // of a stream: the scope that was begun does not come
)

// maxPayload bounds a frame: what exceeds it is not a frame.
const maxPayload = 64 << 20

// partBytes is the size from which on a batch is written in several frames.
const partBytes = 1 << 20

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errDoubt is what ends the reading of a file: what comes cannot have been written so.
var errDoubt = errors.New("not as it was written")

// tornError is of a file that ends in the middle of a frame, which was being written when the process
// ended.
type tornError struct{}

func (e *tornError) Error() string { return "ends in the middle of a frame" }

// sealer encrypts the frames of one file. Nonces are offsets: a file is only ever appended to,
// by the process that has made it, and each file has a key of its own.
type sealer struct {
	aead  cipher.AEAD
	bound [sha256.Size]byte // of the file's header, which says whose it is
}

const saltBytes = 32

// newSealer derives a file's key; nil without a key.
func newSealer(key, salt, header []byte) (*sealer, error) {
	if len(key) == 0 {
		return nil, nil
	}
	derived, err := hkdf.Key(sha256.New, key, salt, "federator persistence v1", 32)
	if err != nil {
		return nil, fmt.Errorf("deriving the key of a file: %w", err)
	}
	block, err := aes.NewCipher(derived)
	if err != nil {
		return nil, fmt.Errorf("deriving the key of a file: %w", err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, fmt.Errorf("deriving the key of a file: %w", err)
	}
	return &sealer{aead, sha256.Sum256(header)}, nil
}

func newSalt() []byte {
	salt := make([]byte, saltBytes)
	_, _ = rand.Read(salt) // it never fails
	return salt
}

func (s *sealer) overhead() int {
	if s == nil {
		return 0
	}
	return s.aead.Overhead()
}

func (s *sealer) nonce(offset int64) []byte {
	return binary.LittleEndian.AppendUint64(make([]byte, s.aead.NonceSize()-8), uint64(offset))
}

// additional is what a frame is bound to: the file's header, the offset (by the nonce), and its own
// header.
func (s *sealer) additional(header []byte) []byte {
	return append(append(make([]byte, 0, len(s.bound)+len(header)), s.bound[:]...), header...)
}

// appendFrame appends a frame that will be at an offset of its file.
func appendFrame(dst []byte, s *sealer, offset int64, kind byte, revision aggregate.Revision, payload []byte) []byte {
	start := len(dst)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(payload)+s.overhead()))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(revision))
	dst = append(dst, kind)
	head := dst[start:]
	dst = binary.LittleEndian.AppendUint32(dst, crc32.Checksum(head, castagnoli))
	dst = append(dst, 0, 0, 0, 0)
	body := len(dst)
	if s == nil {
		dst = append(dst, payload...)
	} else {
		dst = s.aead.Seal(dst, s.nonce(offset), payload, s.additional(dst[start:start+13]))
	}
	binary.LittleEndian.PutUint32(dst[body-4:], crc32.Checksum(dst[body:], castagnoli))
	return dst
}

// frame is one that was read.
type frame struct {
	kind     byte
	revision aggregate.Revision
	payload  []byte // until the next one is read
}

// frameReader reads the frames of a file.
type frameReader struct {
	in     *bufio.Reader
	seal   *sealer
	offset int64 // after the last frame that was read
	buf    []byte
	limit  uint32 // bytes of a payload
}

func newFrameReader(in io.Reader) *frameReader {
	return &frameReader{in: bufio.NewReaderSize(in, 256<<10), limit: maxPayload}
}

// next returns the next frame, io.EOF at the end of the file. All other errors end the file there.
func (r *frameReader) next() (frame, error) {
	var head [frameHeader]byte
	n, err := io.ReadFull(r.in, head[:])
	switch {
	case n == 0 && errors.Is(err, io.EOF):
		return frame{}, io.EOF
	case errors.Is(err, io.ErrUnexpectedEOF):
		return frame{}, &tornError{}
	case err != nil:
		return frame{}, err
	}
	if crc32.Checksum(head[:13], castagnoli) != binary.LittleEndian.Uint32(head[13:]) {
		return frame{}, fmt.Errorf("frame at %d: header: %w", r.offset, errDoubt)
	}
	f := frame{kind: head[12], revision: aggregate.Revision(binary.LittleEndian.Uint64(head[4:]))}
	length := binary.LittleEndian.Uint32(head[:])
	if length > r.limit || f.revision > 1<<53 {
		return frame{}, fmt.Errorf("frame at %d: %d bytes at revision %d: %w", r.offset, length, f.revision, errDoubt)
	}
	if r.buf, err = readFull(r.in, r.buf[:0], int(length)); errors.Is(err, io.ErrUnexpectedEOF) {
		return frame{}, &tornError{}
	} else if err != nil {
		return frame{}, err
	}
	if crc32.Checksum(r.buf, castagnoli) != binary.LittleEndian.Uint32(head[17:]) {
		return frame{}, fmt.Errorf("frame at %d: %w", r.offset, errDoubt)
	}
	f.payload = r.buf
	if r.seal != nil && f.kind != typeHeader {
		if f.payload, err = r.seal.aead.Open(r.buf[:0], r.seal.nonce(r.offset), r.buf, r.seal.additional(head[:13])); err != nil {
			return frame{}, fmt.Errorf("frame at %d: another key, or %w", r.offset, errDoubt)
		}
	}
	r.offset += frameHeader + int64(length)
	return f, nil
}

// readFull reads n bytes, without trusting n before they have come.
func readFull(in io.Reader, dst []byte, n int) ([]byte, error) {
	const step = 1 << 20
	for len(dst) < n {
		more := min(step, n-len(dst))
		at := len(dst)
		if cap(dst) < at+more {
			grown := make([]byte, at, max(at+more, min(n, 2*cap(dst))))
			copy(grown, dst)
			dst = grown
		}
		dst = dst[:at+more]
		if _, err := io.ReadFull(in, dst[at:]); errors.Is(err, io.EOF) {
			return dst[:at], io.ErrUnexpectedEOF
		} else if err != nil {
			return dst[:at], err
		}
	}
	return dst, nil
}

// file is one that this process has made, and appends to.
type file struct {
	f      *os.File
	seal   *sealer
	offset int64
	buf    []byte // frames that are not written yet
	err    error  // the first; nothing is written after it
}

// createFile makes a file with a header. Nobody else may read it.
func createFile(path string, key, header, salt []byte) (*file, error) {
	seal, err := newSealer(key, salt, header)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	w := &file{f: f}
	w.add(typeHeader, 0, header)
	if w.seal = seal; seal != nil {
		w.add(typeProof, 0, nil)
	}
	return w, nil
}

// add adds a frame, which flush writes.
func (w *file) add(kind byte, revision aggregate.Revision, payload []byte) {
	w.buf = appendFrame(w.buf, w.seal, w.offset+int64(len(w.buf)), kind, revision, payload)
}

// flush writes what was added.
func (w *file) flush() error {
	if w.err != nil || len(w.buf) == 0 {
		return w.err
	}
	n, err := w.f.Write(w.buf)
	w.offset += int64(n)
	if err != nil {
		w.err = err
	}
	if w.buf = w.buf[:0]; cap(w.buf) > 4*partBytes {
		w.buf = nil
	}
	return w.err
}

func (w *file) size() int64 { return w.offset + int64(len(w.buf)) }

func (w *file) close() { w.f.Close() }

// syncDir makes the names in a directory last.
func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

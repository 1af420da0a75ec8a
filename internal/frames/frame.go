package frames

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
)

// HeaderBytes is the length of a frame without its payload.
const HeaderBytes = 4 + 8 + 1 + 4 + 4

// Types of frames that files have; all others are those of their package.
const (
	TypeHeader byte = 'H' // of a file
	TypeProof  byte = 'P' // of the header, where the file is sealed: it is bound to it
)

// MaxPayload bounds a frame: what exceeds it is not a frame.
const MaxPayload = 64 << 20

// maxRevision is the last one that clients can read as a number.
const maxRevision = 1 << 53

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ErrDoubt is what ends the reading of a file: what comes cannot have been written so.
var ErrDoubt = errors.New("not as it was written")

// TornError is returned for a file that ends in the middle of a frame, which was being written when the process
// ended.
type TornError struct{}

func (*TornError) Error() string { return "ends in the middle of a frame" }

// Sealer encrypts the frames of one file. Nonces are offsets: a file is only ever appended to,
// what was written to it is never overwritten, and each file has a key of its own. A nil Sealer
// encrypts nothing.
type Sealer struct {
	aead  cipher.AEAD
	bound [sha256.Size]byte // of the file's header, which says whose it is
}

// SaltBytes is the length of a salt.
const SaltBytes = 32

// NewSealer derives a file's key, for what info names (HKDF, RFC 5869); nil without a key.
func NewSealer(key, salt, header []byte, info string) (*Sealer, error) {
	if len(key) == 0 {
		return nil, nil
	}
	derived, err := hkdf.Key(sha256.New, key, salt, info, 32)
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
	return &Sealer{aead, sha256.Sum256(header)}, nil
}

// NewSalt returns a random salt.
func NewSalt() []byte {
	salt := make([]byte, SaltBytes)
	_, _ = rand.Read(salt) // it never fails
	return salt
}

// Overhead is by how many bytes a sealed payload is longer.
func (s *Sealer) Overhead() int {
	if s == nil {
		return 0
	}
	return s.aead.Overhead()
}

func (s *Sealer) nonce(offset int64) []byte {
	return binary.LittleEndian.AppendUint64(make([]byte, s.aead.NonceSize()-8), uint64(offset))
}

// additional is what a frame is bound to: the file's header, the offset (by the nonce), and its own
// header.
func (s *Sealer) additional(header []byte) []byte {
	return append(append(make([]byte, 0, len(s.bound)+len(header)), s.bound[:]...), header...)
}

// Append appends a frame that will be at an offset of its file.
func Append(dst []byte, s *Sealer, offset int64, kind byte, revision uint64, payload []byte) []byte {
	start := len(dst)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(payload)+s.Overhead()))
	dst = binary.LittleEndian.AppendUint64(dst, revision)
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

// Frame is one that was read.
type Frame struct {
	Kind     byte
	Revision uint64
	Payload  []byte // in the buffer that it was read into
}

// head reads a frame's header.
func head(b []byte, offset int64, limit uint32) (f Frame, length int, err error) {
	if crc32.Checksum(b[:13], castagnoli) != binary.LittleEndian.Uint32(b[13:]) {
		return f, 0, fmt.Errorf("frame at %d: header: %w", offset, ErrDoubt)
	}
	f = Frame{Kind: b[12], Revision: binary.LittleEndian.Uint64(b[4:])}
	n := binary.LittleEndian.Uint32(b)
	if n > limit || f.Revision > maxRevision {
		return f, 0, fmt.Errorf("frame at %d: %d bytes at revision %d: %w", offset, n, f.Revision, ErrDoubt)
	}
	return f, int(n), nil
}

// open checks and decrypts a payload, in place.
func open(b, body []byte, s *Sealer, offset int64) ([]byte, error) {
	if crc32.Checksum(body, castagnoli) != binary.LittleEndian.Uint32(b[17:]) {
		return nil, fmt.Errorf("frame at %d: %w", offset, ErrDoubt)
	}
	if s == nil || b[12] == TypeHeader {
		return body, nil
	}
	body, err := s.aead.Open(body[:0], s.nonce(offset), body, s.additional(b[:13]))
	if err != nil {
		return nil, fmt.Errorf("frame at %d: another key, or %w", offset, ErrDoubt)
	}
	return body, nil
}

// Decode decodes the frame that a slice begins with, and which was at an offset of its file. It
// decrypts in place, and returns how many bytes the frame has.
func Decode(b []byte, s *Sealer, offset int64) (f Frame, size int, err error) {
	if len(b) < HeaderBytes {
		return f, 0, &TornError{}
	}
	f, length, err := head(b, offset, MaxPayload)
	if err != nil {
		return f, 0, err
	}
	size = HeaderBytes + length
	if len(b) < size {
		return f, 0, &TornError{}
	}
	f.Payload, err = open(b, b[HeaderBytes:size:size], s, offset)
	return f, size, err
}

// ReadAt reads a frame whose place and size are known, into a buffer that it returns for the next.
// The size is trusted: it comes from a frame that was checked.
func ReadAt(in io.ReaderAt, s *Sealer, offset int64, size int, buf []byte) (Frame, []byte, error) {
	if cap(buf) < size {
		buf = make([]byte, size)
	}
	buf = buf[:size]
	n, err := in.ReadAt(buf, offset)
	switch {
	case n == size:
	case errors.Is(err, io.EOF):
		return Frame{}, buf, &TornError{}
	default:
		return Frame{}, buf, err
	}
	f, got, err := Decode(buf, s, offset)
	if err == nil && got != size {
		err = fmt.Errorf("frame at %d: %d bytes, not %d: %w", offset, got, size, ErrDoubt)
	}
	return f, buf, err
}

// Reader reads the frames of a file in their order.
type Reader struct {
	Seal  *Sealer // of the frames after the header
	Limit uint32  // bytes of a payload

	in     *bufio.Reader
	offset int64
	buf    []byte
}

// NewReader returns a reader whose frames are bounded by MaxPayload.
func NewReader(in io.Reader) *Reader {
	return &Reader{in: bufio.NewReaderSize(in, 256<<10), Limit: MaxPayload}
}

// Offset is that of the end of the last frame that was read.
func (r *Reader) Offset() int64 { return r.offset }

// Next returns the next frame, io.EOF at the end of the file. All other errors end the file there.
// The payload is valid until the next call.
func (r *Reader) Next() (Frame, error) {
	var b [HeaderBytes]byte
	n, err := io.ReadFull(r.in, b[:])
	switch {
	case n == 0 && errors.Is(err, io.EOF):
		return Frame{}, io.EOF
	case errors.Is(err, io.ErrUnexpectedEOF):
		return Frame{}, &TornError{}
	case err != nil:
		return Frame{}, err
	}
	f, length, err := head(b[:], r.offset, r.Limit)
	if err != nil {
		return Frame{}, err
	}
	if r.buf, err = readFull(r.in, r.buf[:0], length); errors.Is(err, io.ErrUnexpectedEOF) {
		return Frame{}, &TornError{}
	} else if err != nil {
		return Frame{}, err
	}
	if f.Payload, err = open(b[:], r.buf, r.Seal, r.offset); err != nil {
		return Frame{}, err
	}
	r.offset += HeaderBytes + int64(length)
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

package selection

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"federator.dev/federator/pkg/aggregate"
)

// TokenScope is what a token is valid for: a caller and a selection.
type TokenScope [16]byte

// NewTokenScope makes a TokenScope of a caller (name, UID and groups, in any order) and of
// their request: target, resource, namespace and selectors.
func NewTokenScope(u user.Info, selection ...string) TokenScope {
	h := sha256.New()
	put := func(parts ...string) {
		b := binary.AppendUvarint(nil, uint64(len(parts)))
		for _, p := range parts {
			b = append(binary.AppendUvarint(b, uint64(len(p))), p...)
		}
		h.Write(b)
	}
	put(u.GetName(), u.GetUID())
	put(slices.Compact(slices.Sorted(slices.Values(u.GetGroups())))...)
	put(selection...)
	return TokenScope(h.Sum(nil)[:len(TokenScope{})])
}

// Token is where a list continues.
type Token struct {
	// Revision is that of the snapshot that the list reads; 0: the newest, as
	// the client has accepted an inconsistent list.
	Revision aggregate.Revision
	After    aggregate.Position // the last object that was sent
}

// TokenCodec encodes and decodes continue tokens of one process.
//
// A token is base64url of: a version byte; the process (8 bytes, big-endian), identified by
// the first revision of its index, which is unique; the revision (8); the TokenScope (16);
// the three strings of the position, each with its length in two bytes; HMAC-SHA256 over all
// of it, truncated to 16 bytes. Nothing in it is secret: the position is that of an object
// that the client was sent.
type TokenCodec struct {
	key     []byte
	process uint64
}

const (
	tokenVersion = 2
	macSize      = 16
	tokenHeader  = 1 + 8 + 8 + len(TokenScope{})
	maxToken     = 4096
	minKey       = 32
)

// NewTokenCodec returns a TokenCodec. key is this process's own, at least 32 random bytes;
// first is the first revision of its index.
func NewTokenCodec(key []byte, first aggregate.Revision) (*TokenCodec, error) {
	if len(key) < minKey {
		return nil, fmt.Errorf("selection: a token key of %d bytes is too short, at least %d", len(key), minKey)
	}
	if first == 0 || first >= 1<<53 {
		return nil, fmt.Errorf("selection: %d is not the first revision of an index", first)
	}
	return &TokenCodec{key: slices.Clone(key), process: uint64(first)}, nil
}

// Encode encodes a token.
func (c *TokenCodec) Encode(scope TokenScope, t Token) string {
	raw := make([]byte, 0, tokenHeader+3*64+macSize)
	raw = append(raw, tokenVersion)
	raw = binary.BigEndian.AppendUint64(raw, c.process)
	raw = binary.BigEndian.AppendUint64(raw, uint64(t.Revision))
	raw = append(raw, scope[:]...)
	for _, part := range []string{t.After.Member, t.After.Namespace, t.After.Name} {
		raw = append(binary.BigEndian.AppendUint16(raw, uint16(len(part))), part...)
	}
	return base64.RawURLEncoding.EncodeToString(append(raw, c.sign(raw)...))
}

func (c *TokenCodec) sign(raw []byte) []byte {
	h := hmac.New(sha256.New, c.key)
	h.Write(raw)
	return h.Sum(nil)[:macSize]
}

// Decode decodes a token. Errors are *apierrors.StatusError: 400 for one that is malformed,
// forged or of another caller or selection, 410 for one of another process, with a token
// that continues at the newest snapshot.
func (c *TokenCodec) Decode(scope TokenScope, token string) (Token, error) {
	if len(token) > maxToken {
		return Token{}, badToken("it is too long")
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil {
		return Token{}, badToken("it is not base64")
	}
	if len(raw) < tokenHeader+macSize || raw[0] != tokenVersion {
		return Token{}, badToken("it is not one of this server's")
	}
	body, mac := raw[:len(raw)-macSize], raw[len(raw)-macSize:]
	t, ok := readToken(body)
	if !ok {
		return Token{}, badToken("it is malformed")
	}
	// Another process's MAC cannot be checked. Its token gives access only to what the
	// caller may list anyway, from a position of their choice.
	foreign := binary.BigEndian.Uint64(body[1:]) != c.process
	if !foreign && !hmac.Equal(mac, c.sign(body)) {
		return Token{}, badToken("it was not issued by this server")
	}
	if TokenScope(body[17:tokenHeader]) != scope {
		return Token{}, badToken("it was issued to another caller, or for another resource, namespace or selector")
	}
	if foreign {
		return Token{}, c.Expired(scope, t.After)
	}
	return t, nil
}

func readToken(body []byte) (t Token, ok bool) {
	t.Revision = aggregate.Revision(binary.BigEndian.Uint64(body[9:]))
	rest := body[tokenHeader:]
	for _, part := range []*string{&t.After.Member, &t.After.Namespace, &t.After.Name} {
		if len(rest) < 2 {
			return t, false
		}
		n := int(binary.BigEndian.Uint16(rest))
		if rest = rest[2:]; len(rest) < n {
			return t, false
		}
		*part, rest = string(rest[:n]), rest[n:]
	}
	return t, len(rest) == 0
}

func badToken(why string) error {
	return apierrors.NewBadRequest("continue key is not valid: " + why)
}

// inconsistentContinue is what API servers say: k8s.io/apiserver,
// pkg/storage/etcd3/errors.go.
const inconsistentContinue = "The provided continue parameter is too old " +
	"to display a consistent list result. You can start a new list without " +
	"the continue parameter, or use the continue token in this response to " +
	"retrieve the remainder of the results. Continuing with the provided " +
	"token results in an inconsistent list - objects that were created, " +
	"modified, or deleted between the time the first chunk was returned " +
	"and now may show up in the list."

// Expired is the 410 for a token whose snapshot is gone. It carries a token
// that continues after the same position at the newest snapshot.
func (c *TokenCodec) Expired(scope TokenScope, after aggregate.Position) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status:   metav1.StatusFailure,
		Code:     http.StatusGone,
		Reason:   metav1.StatusReasonExpired,
		Message:  inconsistentContinue,
		ListMeta: metav1.ListMeta{Continue: c.Encode(scope, Token{After: after})},
	}}
}

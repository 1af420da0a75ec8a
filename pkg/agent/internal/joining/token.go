// Package joining has what an agent and federator say to each other besides the requests to the member: the token that
// an agent joins with, and the few requests of an agent to federator.
package joining

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"strings"
)

const (
	tokenPrefix = "federator-join-v1."
	idBytes     = 10
	secretBytes = 32
)

// Token lets one agent join, once. Who has it can, so it is not kept anywhere: the hub has ID and Hash.
type Token struct {
	id     [idBytes]byte
	secret [secretBytes]byte
	// Authority is the digest of the public key of the CA that the agent verifies federator by, before it trusts
	// anything that federator says.
	Authority [sha256.Size]byte
}

// NewToken returns a token that no other is like.
func NewToken(authority [sha256.Size]byte) Token {
	t := Token{Authority: authority}
	rand.Read(t.id[:])     //nolint:errcheck // it never fails
	rand.Read(t.secret[:]) //nolint:errcheck // it never fails
	return t
}

// encoding has one text for each token.
var encoding = base64.RawURLEncoding.Strict()

// String returns the text that agents are given.
func (t Token) String() string {
	b := append(t.id[:len(t.id):len(t.id)], t.secret[:]...)
	return tokenPrefix + encoding.EncodeToString(append(b, t.Authority[:]...))
}

// errToken does not repeat a text that may be a secret.
var errToken = errors.New("this is no token of federator agent token: it begins with " + tokenPrefix + " and has 117 characters")

// ParseToken returns the token of a text. Space around it is ignored, as files end with some.
func ParseToken(text string) (Token, error) {
	var t Token
	text, is := strings.CutPrefix(strings.TrimSpace(text), tokenPrefix)
	if !is || len(text) != encoding.EncodedLen(idBytes+secretBytes+sha256.Size) || strings.ContainsAny(text, "\r\n") {
		return t, errToken
	}
	b, err := encoding.DecodeString(text)
	if err != nil {
		return t, errToken
	}
	copy(t.id[:], b)
	copy(t.secret[:], b[idBytes:])
	copy(t.Authority[:], b[idBytes+secretBytes:])
	return t, nil
}

// ID tells tokens apart, and is no secret.
func (t Token) ID() string { return hex.EncodeToString(t.id[:]) }

// Hash is what the hub knows of the secret, which is too long to be guessed.
func (t Token) Hash() string {
	sum := sha256.Sum256(t.secret[:])
	return hex.EncodeToString(sum[:])
}

// Matches reports whether a hash is of this token.
func (t Token) Matches(hash string) bool {
	return subtle.ConstantTimeCompare([]byte(t.Hash()), []byte(hash)) == 1
}

// Package signature verifies SSH signatures, in OpenSSH's format, and OpenPGP signatures
// of commits and tags.
//
// A key must be valid now and, with SSH's valid-after and valid-before, at the time in the
// commit, too. Now, because the owner of an expired key can write any time into a commit.
// Certificates and SHA-1 are not supported.
package signature

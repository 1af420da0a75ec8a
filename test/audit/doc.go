// Package audit loses events between a real API server and federator, and has audits find them: what was
// dropped, repeated late, swapped or altered is found and repaired, and nothing that is only in
// flight is taken for lost.
//
// make audit loses LOSSES events, runs AUDITS audits beside 500 writes a second, and measures what audits
// cost the API server; make test does so with few.
package audit

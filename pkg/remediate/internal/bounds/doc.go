// Package bounds counts what bounds writes to a whole fleet, whatever policies say: how many
// writes in a second, to how many members at once, how many members may be away, and how many
// corrections may fail before everything stops.
//
// A Gate is pure: it reads no clock, starts nothing and has no lock. Its owner passes the time
// and keeps calls apart.
package bounds

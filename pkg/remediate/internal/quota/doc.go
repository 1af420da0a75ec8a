// Package quota counts the Actions on the hub, and their bytes, and says when there is no room
// for more. It asks nobody and reads no clock.
package quota

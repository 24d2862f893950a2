"""The evaluation of Yahoo! S4 by Chauhan, Chowdhury and Makaroff (2012), sections IV and V, on Penstock."""

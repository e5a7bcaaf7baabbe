"""Objects as files on a local or shared disk, and the folders in which slots work."""

"""The classes that users extend and the contexts they receive: PyFlink's names and signatures."""
